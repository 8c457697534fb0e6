"""A method for every operation, as coroutines.

Made by generate.py from docs/openapi.json: do not edit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

from . import types as _types
from ._codec import path as _path
from ._errors import Answer

T = TypeVar("T")


class AsyncOperations:
    """The operations. AsyncClient adds how they are sent."""

    async def _invoke(
        self,
        method: str,
        path: str,
        kind: type[T] | None,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        key: str | None = None,
        answer: Answer | None = None,
    ) -> T:
        raise NotImplementedError

    def _pages(self, path: str, kind: type[T], query: Mapping[str, Any], limit: int) -> AsyncIterator[T]:
        raise NotImplementedError

    async def healthy(self, *, answer: Answer | None = None) -> _types.Health:
        """Is the process alive. See :meth:`fairlead.Client.healthy`."""
        return await self._invoke("GET", "/healthz", _types.Health, answer=answer)

    async def public_auction(self, auction: str, /, *, answer: Answer | None = None) -> _types.PublicAuction:
        """Read what an auction's public page shows. See :meth:`fairlead.Client.public_auction`."""
        return await self._invoke(
            "GET",
            _path("/p/auctions/{id}/state", {"id": auction}),
            _types.PublicAuction,
            answer=answer,
        )

    async def public_position(
        self,
        campaign: str,
        position: str,
        /,
        *,
        answer: Answer | None = None,
    ) -> _types.PublicPosition:
        """Read that a position was sealed, and by which alias it was bought. See :meth:`fairlead.Client.public_position`."""
        return await self._invoke(
            "GET",
            _path("/p/campaigns/{id}/positions/{position}", {"id": campaign, "position": position}),
            _types.PublicPosition,
            answer=answer,
        )

    async def public_campaign(self, campaign: str, /, *, answer: Answer | None = None) -> _types.PublicCampaign:
        """Read what a campaign's public page shows. See :meth:`fairlead.Client.public_campaign`."""
        return await self._invoke(
            "GET",
            _path("/p/campaigns/{id}/state", {"id": campaign}),
            _types.PublicCampaign,
            answer=answer,
        )

    async def ready(self, *, answer: Answer | None = None) -> _types.Health:
        """Are commands served. See :meth:`fairlead.Client.ready`."""
        return await self._invoke("GET", "/readyz", _types.Health, answer=answer)

    async def create_account(
        self,
        *,
        currency: str,
        id: str,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Account:
        """Open an account. See :meth:`fairlead.Client.create_account`."""
        return await self._invoke(
            "POST",
            "/v1/accounts",
            _types.Account,
            body={"currency": currency, "id": id},
            key=idempotency_key,
            answer=answer,
        )

    async def get_account(self, account: str, /, *, answer: Answer | None = None) -> _types.Account:
        """Read an account. See :meth:`fairlead.Client.get_account`."""
        return await self._invoke("GET", _path("/v1/accounts/{id}", {"id": account}), _types.Account, answer=answer)

    async def alias(self, account: str, /, *, topic: str | None = None, answer: Answer | None = None) -> _types.Alias:
        """Read what public pages call an account. See :meth:`fairlead.Client.alias`."""
        return await self._invoke(
            "GET",
            _path("/v1/accounts/{id}/aliases", {"id": account}),
            _types.Alias,
            query={"topic": topic},
            answer=answer,
        )

    def account_bids(self, account: str, /, *, limit: int = 200) -> AsyncIterator[_types.AccountBid]:
        """List an account's standing bids in auctions under way, oldest auction first. See :meth:`fairlead.Client.account_bids`."""
        return self._pages(_path("/v1/accounts/{id}/bids", {"id": account}), _types.AccountBid, {}, limit)

    def entries(self, account: str, /, *, limit: int = 200) -> AsyncIterator[_types.Entry]:
        """List an account's entries, oldest first. See :meth:`fairlead.Client.entries`."""
        return self._pages(_path("/v1/accounts/{id}/entries", {"id": account}), _types.Entry, {}, limit)

    def account_holds(self, account: str, /, *, limit: int = 200) -> AsyncIterator[_types.OpenHold]:
        """List an account's open holds, newest first. See :meth:`fairlead.Client.account_holds`."""
        return self._pages(_path("/v1/accounts/{id}/holds", {"id": account}), _types.OpenHold, {}, limit)

    async def account_proof(
        self,
        account: str,
        /,
        *,
        at: str | None = None,
        answer: Answer | None = None,
    ) -> _types.AccountProof:
        """Prove an account's balance by the public log. See :meth:`fairlead.Client.account_proof`."""
        return await self._invoke(
            "GET",
            _path("/v1/accounts/{id}/proof", {"id": account}),
            _types.AccountProof,
            query={"at": at},
            answer=answer,
        )

    def account_purchases(self, account: str, /, *, limit: int = 200) -> AsyncIterator[_types.Purchase]:
        """List an account's purchases in all campaigns, newest first. See :meth:`fairlead.Client.account_purchases`."""
        return self._pages(_path("/v1/accounts/{id}/purchases", {"id": account}), _types.Purchase, {}, limit)

    def accounts(self, *, prefix: str | None = None, limit: int = 200) -> AsyncIterator[_types.Account]:
        """List accounts by id. See :meth:`fairlead.Client.accounts`."""
        return self._pages("/v1/admin/accounts", _types.Account, {"prefix": prefix}, limit)

    async def balances(self, account: str, /, *, answer: Answer | None = None) -> _types.Balances:
        """Read an account's balance over the last hour. See :meth:`fairlead.Client.balances`."""
        return await self._invoke(
            "GET",
            _path("/v1/admin/accounts/{id}/balances", {"id": account}),
            _types.Balances,
            answer=answer,
        )

    def admin_entries(self, account: str, /, *, limit: int = 200) -> AsyncIterator[_types.AccountEntry]:
        """List an account's entries with their balances, newest first. See :meth:`fairlead.Client.admin_entries`."""
        return self._pages(_path("/v1/admin/accounts/{id}/entries", {"id": account}), _types.AccountEntry, {}, limit)

    def admin_holds(self, account: str, /, *, limit: int = 200) -> AsyncIterator[_types.OpenHold]:
        """List an account's open holds, newest first. See :meth:`fairlead.Client.admin_holds`."""
        return self._pages(_path("/v1/admin/accounts/{id}/holds", {"id": account}), _types.OpenHold, {}, limit)

    def admin_auctions(self, *, status: str | None = None, limit: int = 200) -> AsyncIterator[_types.AuctionSummary]:
        """List auctions, newest first. See :meth:`fairlead.Client.admin_auctions`."""
        return self._pages("/v1/admin/auctions", _types.AuctionSummary, {"status": status}, limit)

    def admin_bids(
        self,
        auction: str,
        /,
        *,
        account: str | None = None,
        limit: int = 200,
    ) -> AsyncIterator[_types.PlacedBid]:
        """List bids, newest first. See :meth:`fairlead.Client.admin_bids`."""
        return self._pages(_path("/v1/admin/auctions/{id}/bids", {"id": auction}), _types.PlacedBid, {"account": account}, limit)

    async def bid_chart(self, auction: str, /, *, answer: Answer | None = None) -> _types.BidChart:
        """Read bids and rounds for a chart: every bid, or an even sample of many. See :meth:`fairlead.Client.bid_chart`."""
        return await self._invoke(
            "GET",
            _path("/v1/admin/auctions/{id}/chart", {"id": auction}),
            _types.BidChart,
            answer=answer,
        )

    def audits(
        self,
        *,
        action: str | None = None,
        object: str | None = None,
        principal: str | None = None,
        limit: int = 200,
    ) -> AsyncIterator[_types.Audit]:
        """List administrative actions, newest first. See :meth:`fairlead.Client.audits`."""
        return self._pages("/v1/admin/audit", _types.Audit, {"action": action, "object": object, "principal": principal}, limit)

    def admin_automations(self, *, limit: int = 200) -> AsyncIterator[_types.Automation]:
        """List automations, newest first. See :meth:`fairlead.Client.admin_automations`."""
        return self._pages("/v1/admin/automations", _types.Automation, {}, limit)

    def admin_firings(self, automation: str, /, *, limit: int = 200) -> AsyncIterator[_types.Firing]:
        """List what an automation has fired, newest first. See :meth:`fairlead.Client.admin_firings`."""
        return self._pages(_path("/v1/admin/automations/{id}/firings", {"id": automation}), _types.Firing, {}, limit)

    def admin_campaigns(self, *, status: str | None = None, limit: int = 200) -> AsyncIterator[_types.CampaignSummary]:
        """List campaigns, newest first. See :meth:`fairlead.Client.admin_campaigns`."""
        return self._pages("/v1/admin/campaigns", _types.CampaignSummary, {"status": status}, limit)

    async def sale_map(self, campaign: str, /, *, answer: Answer | None = None) -> _types.SaleMap:
        """Read which positions are sold. See :meth:`fairlead.Client.sale_map`."""
        return await self._invoke(
            "GET",
            _path("/v1/admin/campaigns/{id}/map", {"id": campaign}),
            _types.SaleMap,
            answer=answer,
        )

    def admin_purchases(
        self,
        campaign: str,
        /,
        *,
        account: str | None = None,
        limit: int = 200,
    ) -> AsyncIterator[_types.Purchase]:
        """List a campaign's purchases, newest first. See :meth:`fairlead.Client.admin_purchases`."""
        return self._pages(_path("/v1/admin/campaigns/{id}/purchases", {"id": campaign}), _types.Purchase, {"account": account}, limit)

    async def sales(self, campaign: str, /, *, answer: Answer | None = None) -> _types.Sales:
        """Read a campaign's sales over time: every one, or an even sample of many. See :meth:`fairlead.Client.sales`."""
        return await self._invoke(
            "GET",
            _path("/v1/admin/campaigns/{id}/sales", {"id": campaign}),
            _types.Sales,
            answer=answer,
        )

    async def database_waits(self, *, answer: Answer | None = None) -> _types.DatabaseWaits:
        """See which sessions of the database wait for PostgreSQL's own locks, and for whom. See :meth:`fairlead.Client.database_waits`."""
        return await self._invoke("GET", "/v1/admin/database-waits", _types.DatabaseWaits, answer=answer)

    async def deadlocks(self, *, answer: Answer | None = None) -> _types.Deadlocks:
        """Read which deadlocks this process has broken, newest first. See :meth:`fairlead.Client.deadlocks`."""
        return await self._invoke("GET", "/v1/admin/deadlocks", _types.Deadlocks, answer=answer)

    async def key_record(
        self,
        *,
        key: str | None = None,
        method: str | None = None,
        path: str | None = None,
        principal: str | None = None,
        answer: Answer | None = None,
    ) -> _types.KeyRecord:
        """Read what is kept under an idempotency key. See :meth:`fairlead.Client.key_record`."""
        return await self._invoke(
            "GET",
            "/v1/admin/idempotency",
            _types.KeyRecord,
            query={"key": key, "method": method, "path": path, "principal": principal},
            answer=answer,
        )

    def admin_keys(self, *, limit: int = 200) -> AsyncIterator[_types.Key]:
        """List API keys, newest first. See :meth:`fairlead.Client.admin_keys`."""
        return self._pages("/v1/admin/keys", _types.Key, {}, limit)

    async def measurements(self, *, since: str | None = None, answer: Answer | None = None) -> _types.Measurements:
        """Read what this process measured over the last hour. See :meth:`fairlead.Client.measurements`."""
        return await self._invoke(
            "GET",
            "/v1/admin/measurements",
            _types.Measurements,
            query={"since": since},
            answer=answer,
        )

    def admin_multidraws(self, *, limit: int = 200) -> AsyncIterator[_types.MultidrawSummary]:
        """List multi-draws, newest first. See :meth:`fairlead.Client.admin_multidraws`."""
        return self._pages("/v1/admin/multidraws", _types.MultidrawSummary, {}, limit)

    async def names(self, *, ids: str | None = None, answer: Answer | None = None) -> _types.Found:
        """Read the names of things by their ids. See :meth:`fairlead.Client.names`."""
        return await self._invoke("GET", "/v1/admin/names", _types.Found, query={"ids": ids}, answer=answer)

    async def overview(self, *, answer: Answer | None = None) -> _types.Overview:
        """Read what this process measured, and what waits in the whole system. See :meth:`fairlead.Client.overview`."""
        return await self._invoke("GET", "/v1/admin/overview", _types.Overview, answer=answer)

    def admin_publications(
        self,
        *,
        status: str | None = None,
        target: str | None = None,
        error: str | None = None,
        cause: str | None = None,
        limit: int = 200,
    ) -> AsyncIterator[_types.Publication]:
        """List publications, newest first. See :meth:`fairlead.Client.admin_publications`."""
        return self._pages("/v1/admin/publications", _types.Publication, {"status": status, "target": target, "error": error, "cause": cause}, limit)

    def admin_attempts(self, publication: str, /, *, limit: int = 200) -> AsyncIterator[_types.Attempt]:
        """List a publication's attempts, newest first. See :meth:`fairlead.Client.admin_attempts`."""
        return self._pages(_path("/v1/admin/publications/{id}/attempts", {"id": publication}), _types.Attempt, {}, limit)

    def admin_sagas(
        self,
        *,
        account: str | None = None,
        name: str | None = None,
        status: str | None = None,
        stuck: bool | None = None,
        limit: int = 200,
    ) -> AsyncIterator[_types.Saga]:
        """List operations of several steps, newest first. See :meth:`fairlead.Client.admin_sagas`."""
        return self._pages("/v1/admin/sagas", _types.Saga, {"account": account, "name": name, "status": status, "stuck": stuck}, limit)

    async def search(self, *, q: str | None = None, answer: Answer | None = None) -> _types.Found:
        """Find things by id, reference or name. See :meth:`fairlead.Client.search`."""
        return await self._invoke("GET", "/v1/admin/search", _types.Found, query={"q": q}, answer=answer)

    def admin_targets(self, *, limit: int = 200) -> AsyncIterator[_types.Target]:
        """List targets, newest first. See :meth:`fairlead.Client.admin_targets`."""
        return self._pages("/v1/admin/targets", _types.Target, {}, limit)

    def transfers(self, *, status: str | None = None, limit: int = 200) -> AsyncIterator[_types.Transfer]:
        """List transfers, newest first. See :meth:`fairlead.Client.transfers`."""
        return self._pages("/v1/admin/transfers", _types.Transfer, {"status": status}, limit)

    def auctions(self, *, limit: int = 200) -> AsyncIterator[_types.AuctionSummary]:
        """List auctions, oldest first. See :meth:`fairlead.Client.auctions`."""
        return self._pages("/v1/auctions", _types.AuctionSummary, {}, limit)

    async def create_auction(
        self,
        *,
        currency: str,
        rounds: Sequence[_types.RoundRequest | Mapping[str, Any]],
        seller: str,
        title: str,
        anti_snipe: _types.AntiSnipeRequest | Mapping[str, Any] | None = None,
        cooldown: str | timedelta | None = None,
        min_bid: int | None = None,
        min_increment: int | None = None,
        unique_amounts: bool | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Auction:
        """Make an auction, pending. See :meth:`fairlead.Client.create_auction`."""
        return await self._invoke(
            "POST",
            "/v1/auctions",
            _types.Auction,
            body={"currency": currency, "rounds": rounds, "seller": seller, "title": title, "anti_snipe": anti_snipe, "cooldown": cooldown, "min_bid": min_bid, "min_increment": min_increment, "unique_amounts": unique_amounts},
            key=idempotency_key,
            answer=answer,
        )

    async def get_auction(self, auction: str, /, *, answer: Answer | None = None) -> _types.Auction:
        """Read an auction. See :meth:`fairlead.Client.get_auction`."""
        return await self._invoke("GET", _path("/v1/auctions/{id}", {"id": auction}), _types.Auction, answer=answer)

    def bids(self, auction: str, /, *, limit: int = 200) -> AsyncIterator[_types.PlacedBid]:
        """List accepted bids in order. See :meth:`fairlead.Client.bids`."""
        return self._pages(_path("/v1/auctions/{id}/bids", {"id": auction}), _types.PlacedBid, {}, limit)

    async def bid(
        self,
        auction: str,
        /,
        *,
        account: str,
        amount: int,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Bid:
        """Bid, or raise the account's bid. See :meth:`fairlead.Client.bid`."""
        return await self._invoke(
            "POST",
            _path("/v1/auctions/{id}/bids", {"id": auction}),
            _types.Bid,
            body={"account": account, "amount": amount},
            key=idempotency_key,
            answer=answer,
        )

    async def cancel_auction(
        self,
        auction: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Auction:
        """End an auction, with every hold released. See :meth:`fairlead.Client.cancel_auction`."""
        return await self._invoke(
            "POST",
            _path("/v1/auctions/{id}/cancel", {"id": auction}),
            _types.Auction,
            key=idempotency_key,
            answer=answer,
        )

    def leaderboard(self, auction: str, /, *, limit: int = 200) -> AsyncIterator[_types.Rank]:
        """List standing bids by rank: of the open round, or of the last one after the end. See :meth:`fairlead.Client.leaderboard`."""
        return self._pages(_path("/v1/auctions/{id}/leaderboard", {"id": auction}), _types.Rank, {}, limit)

    def auction_log(self, auction: str, /, *, limit: int = 200) -> AsyncIterator[_types.LogLeaf]:
        """List an auction's leaves in the public log. See :meth:`fairlead.Client.auction_log`."""
        return self._pages(_path("/v1/auctions/{id}/log", {"id": auction}), _types.LogLeaf, {}, limit)

    async def min_winning_bid(self, auction: str, /, *, answer: Answer | None = None) -> _types.MinWinningBid:
        """Read the least new bid that would now win. See :meth:`fairlead.Client.min_winning_bid`."""
        return await self._invoke(
            "GET",
            _path("/v1/auctions/{id}/min-winning-bid", {"id": auction}),
            _types.MinWinningBid,
            answer=answer,
        )

    async def start_auction(
        self,
        auction: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Auction:
        """Open the first round. See :meth:`fairlead.Client.start_auction`."""
        return await self._invoke(
            "POST",
            _path("/v1/auctions/{id}/start", {"id": auction}),
            _types.Auction,
            key=idempotency_key,
            answer=answer,
        )

    def auction_winners(self, auction: str, /, *, limit: int = 200) -> AsyncIterator[_types.AuctionWinner]:
        """List winners by round and rank. See :meth:`fairlead.Client.auction_winners`."""
        return self._pages(_path("/v1/auctions/{id}/winners", {"id": auction}), _types.AuctionWinner, {}, limit)

    def automations(self, *, limit: int = 200) -> AsyncIterator[_types.Automation]:
        """List automations, oldest first. See :meth:`fairlead.Client.automations`."""
        return self._pages("/v1/automations", _types.Automation, {}, limit)

    async def create_automation(
        self,
        *,
        name: str,
        target: str,
        daily_quota: int | None = None,
        every: str | timedelta | None = None,
        jitter: str | timedelta | None = None,
        pick: Literal["random", "first", "last"] | None = None,
        starts_at: datetime | None = None,
        time_zone: str | None = None,
        times: Sequence[str] | None = None,
        weekdays: Sequence[str] | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Automation:
        """Make an automation: a rule that schedules drafts of a target. See :meth:`fairlead.Client.create_automation`."""
        return await self._invoke(
            "POST",
            "/v1/automations",
            _types.Automation,
            body={"name": name, "target": target, "daily_quota": daily_quota, "every": every, "jitter": jitter, "pick": pick, "starts_at": starts_at, "time_zone": time_zone, "times": times, "weekdays": weekdays},
            key=idempotency_key,
            answer=answer,
        )

    async def get_automation(self, automation: str, /, *, answer: Answer | None = None) -> _types.Automation:
        """Read an automation, and when it fires next. See :meth:`fairlead.Client.get_automation`."""
        return await self._invoke(
            "GET",
            _path("/v1/automations/{id}", {"id": automation}),
            _types.Automation,
            answer=answer,
        )

    async def cancel_automation(
        self,
        automation: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Automation:
        """End an automation for good. See :meth:`fairlead.Client.cancel_automation`."""
        return await self._invoke(
            "POST",
            _path("/v1/automations/{id}/cancel", {"id": automation}),
            _types.Automation,
            key=idempotency_key,
            answer=answer,
        )

    def firings(self, automation: str, /, *, limit: int = 200) -> AsyncIterator[_types.Firing]:
        """List what an automation has fired, in order. See :meth:`fairlead.Client.firings`."""
        return self._pages(_path("/v1/automations/{id}/firings", {"id": automation}), _types.Firing, {}, limit)

    async def pause_automation(
        self,
        automation: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Automation:
        """Keep an automation from firing. See :meth:`fairlead.Client.pause_automation`."""
        return await self._invoke(
            "POST",
            _path("/v1/automations/{id}/pause", {"id": automation}),
            _types.Automation,
            key=idempotency_key,
            answer=answer,
        )

    async def resume_automation(
        self,
        automation: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Automation:
        """Let a paused automation fire again, from its next time on. See :meth:`fairlead.Client.resume_automation`."""
        return await self._invoke(
            "POST",
            _path("/v1/automations/{id}/resume", {"id": automation}),
            _types.Automation,
            key=idempotency_key,
            answer=answer,
        )

    def campaigns(self, *, limit: int = 200) -> AsyncIterator[_types.CampaignSummary]:
        """List campaigns, oldest first. See :meth:`fairlead.Client.campaigns`."""
        return self._pages("/v1/campaigns", _types.CampaignSummary, {}, limit)

    async def create_campaign(
        self,
        *,
        beneficiary: str,
        currency: str,
        name: str,
        prizes: Sequence[_types.PrizeRequest | Mapping[str, Any]],
        base_length: int | None = None,
        draw: Literal["instant", "beacon"] | None = None,
        layers: Sequence[_types.LayerRequest | Mapping[str, Any]] | None = None,
        price: int | None = None,
        purchase_limit: int | None = None,
        witnesses: int | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Campaign:
        """Make a campaign, pending. See :meth:`fairlead.Client.create_campaign`."""
        return await self._invoke(
            "POST",
            "/v1/campaigns",
            _types.Campaign,
            body={"beneficiary": beneficiary, "currency": currency, "name": name, "prizes": prizes, "base_length": base_length, "draw": draw, "layers": layers, "price": price, "purchase_limit": purchase_limit, "witnesses": witnesses},
            key=idempotency_key,
            answer=answer,
        )

    async def get_campaign(self, campaign: str, /, *, answer: Answer | None = None) -> _types.Campaign:
        """Read a campaign. See :meth:`fairlead.Client.get_campaign`."""
        return await self._invoke("GET", _path("/v1/campaigns/{id}", {"id": campaign}), _types.Campaign, answer=answer)

    async def cancel_campaign(
        self,
        campaign: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Campaign:
        """End a campaign that was not drawn, with refunds. See :meth:`fairlead.Client.cancel_campaign`."""
        return await self._invoke(
            "POST",
            _path("/v1/campaigns/{id}/cancel", {"id": campaign}),
            _types.Campaign,
            key=idempotency_key,
            answer=answer,
        )

    async def get_draw(self, campaign: str, /, *, answer: Answer | None = None) -> _types.Draw:
        """Read the draw. See :meth:`fairlead.Client.get_draw`."""
        return await self._invoke(
            "GET",
            _path("/v1/campaigns/{id}/draw", {"id": campaign}),
            _types.Draw,
            answer=answer,
        )

    async def draw(
        self,
        campaign: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Draw:
        """Ask for the draw: the same one for ever. See :meth:`fairlead.Client.draw`."""
        return await self._invoke(
            "POST",
            _path("/v1/campaigns/{id}/draw", {"id": campaign}),
            _types.Draw,
            key=idempotency_key,
            answer=answer,
        )

    def campaign_log(self, campaign: str, /, *, limit: int = 200) -> AsyncIterator[_types.LogLeaf]:
        """List a campaign's leaves in the public log. See :meth:`fairlead.Client.campaign_log`."""
        return self._pages(_path("/v1/campaigns/{id}/log", {"id": campaign}), _types.LogLeaf, {}, limit)

    def positions(self, campaign: str, /, *, limit: int = 200) -> AsyncIterator[_types.Position]:
        """List positions by layer and number. See :meth:`fairlead.Client.positions`."""
        return self._pages(_path("/v1/campaigns/{id}/positions", {"id": campaign}), _types.Position, {}, limit)

    async def proof(self, campaign: str, /, *, answer: Answer | None = None) -> bytes:
        """Read the document that fairlead verify checks. See :meth:`fairlead.Client.proof`."""
        return await self._invoke("GET", _path("/v1/campaigns/{id}/proof", {"id": campaign}), bytes, answer=answer)

    async def inclusion_proof(self, campaign: str, position: str, /, *, answer: Answer | None = None) -> bytes:
        """Read the proof that a position was sealed. See :meth:`fairlead.Client.inclusion_proof`."""
        return await self._invoke(
            "GET",
            _path("/v1/campaigns/{id}/proof/positions/{position}", {"id": campaign, "position": position}),
            bytes,
            answer=answer,
        )

    async def publish_campaign(
        self,
        campaign: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Campaign:
        """Open the sale. See :meth:`fairlead.Client.publish_campaign`."""
        return await self._invoke(
            "POST",
            _path("/v1/campaigns/{id}/publish", {"id": campaign}),
            _types.Campaign,
            key=idempotency_key,
            answer=answer,
        )

    def purchases(self, campaign: str, /, *, limit: int = 200) -> AsyncIterator[_types.Purchase]:
        """List purchases in the order of sale; to a user, its own. See :meth:`fairlead.Client.purchases`."""
        return self._pages(_path("/v1/campaigns/{id}/purchases", {"id": campaign}), _types.Purchase, {}, limit)

    async def buy(
        self,
        campaign: str,
        /,
        *,
        account: str,
        layer: int | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Purchase:
        """Buy a random free position. See :meth:`fairlead.Client.buy`."""
        return await self._invoke(
            "POST",
            _path("/v1/campaigns/{id}/purchases", {"id": campaign}),
            _types.Purchase,
            body={"account": account, "layer": layer},
            key=idempotency_key,
            answer=answer,
        )

    async def campaign_seal(self, campaign: str, /, *, answer: Answer | None = None) -> _types.Seal:
        """Prove that witnesses have seen a campaign's seal before its round. See :meth:`fairlead.Client.campaign_seal`."""
        return await self._invoke(
            "GET",
            _path("/v1/campaigns/{id}/seal", {"id": campaign}),
            _types.Seal,
            answer=answer,
        )

    async def statistics(self, campaign: str, /, *, answer: Answer | None = None) -> _types.Statistics:
        """Read what the sales add up to. See :meth:`fairlead.Client.statistics`."""
        return await self._invoke(
            "GET",
            _path("/v1/campaigns/{id}/statistics", {"id": campaign}),
            _types.Statistics,
            answer=answer,
        )

    async def execute_cross_leg(
        self,
        *,
        amount: int,
        currency: str,
        from_: _types.CrossEnd | Mapping[str, Any],
        saga: str,
        step: Literal["debit", "credit", "transfer"],
        to: _types.CrossEnd | Mapping[str, Any],
        cancel: str | None = None,
        undo: bool | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.CrossLeg:
        """Execute, once, this ledger's leg of another server's transfer. See :meth:`fairlead.Client.execute_cross_leg`."""
        return await self._invoke(
            "POST",
            "/v1/cross-legs",
            _types.CrossLeg,
            body={"amount": amount, "currency": currency, "from": from_, "saga": saga, "step": step, "to": to, "cancel": cancel, "undo": undo},
            key=idempotency_key,
            answer=answer,
        )

    def cross_transfers(self, *, stuck: bool | None = None, limit: int = 200) -> AsyncIterator[_types.CrossTransfer]:
        """List transfers between ledgers, oldest first. See :meth:`fairlead.Client.cross_transfers`."""
        return self._pages("/v1/cross-transfers", _types.CrossTransfer, {"stuck": stuck}, limit)

    async def cross_transfer(
        self,
        *,
        amount: int,
        from_: _types.CrossEnd | Mapping[str, Any],
        mode: Literal["saga", "twophase"],
        to: _types.CrossEnd | Mapping[str, Any],
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.CrossTransfer:
        """Move money between accounts of different ledgers. See :meth:`fairlead.Client.cross_transfer`."""
        return await self._invoke(
            "POST",
            "/v1/cross-transfers",
            _types.CrossTransfer,
            body={"amount": amount, "from": from_, "mode": mode, "to": to},
            key=idempotency_key,
            answer=answer,
        )

    async def get_cross_transfer(
        self,
        cross_transfer: str,
        /,
        *,
        answer: Answer | None = None,
    ) -> _types.CrossTransfer:
        """Read a transfer between ledgers. See :meth:`fairlead.Client.get_cross_transfer`."""
        return await self._invoke(
            "GET",
            _path("/v1/cross-transfers/{id}", {"id": cross_transfer}),
            _types.CrossTransfer,
            answer=answer,
        )

    async def compensate_cross_transfer(
        self,
        cross_transfer: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.CrossTransfer:
        """Give a pending transfer up: legs that are not done are cancelled, those that are done are undone. See :meth:`fairlead.Client.compensate_cross_transfer`."""
        return await self._invoke(
            "POST",
            _path("/v1/cross-transfers/{id}/compensate", {"id": cross_transfer}),
            _types.CrossTransfer,
            key=idempotency_key,
            answer=answer,
        )

    async def retry_cross_transfer(
        self,
        cross_transfer: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.CrossTransfer:
        """Let a pending transfer be tried at once. See :meth:`fairlead.Client.retry_cross_transfer`."""
        return await self._invoke(
            "POST",
            _path("/v1/cross-transfers/{id}/retry", {"id": cross_transfer}),
            _types.CrossTransfer,
            key=idempotency_key,
            answer=answer,
        )

    async def deposit(
        self,
        *,
        account: str,
        amount: int,
        memo: str | None = None,
        reference: str | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Movement:
        """Bring money in from the outside. See :meth:`fairlead.Client.deposit`."""
        return await self._invoke(
            "POST",
            "/v1/deposits",
            _types.Movement,
            body={"account": account, "amount": amount, "memo": memo, "reference": reference},
            key=idempotency_key,
            answer=answer,
        )

    async def hold(
        self,
        *,
        account: str,
        amount: int,
        expires_in: str | timedelta | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Hold:
        """Set money aside. See :meth:`fairlead.Client.hold`."""
        return await self._invoke(
            "POST",
            "/v1/holds",
            _types.Hold,
            body={"account": account, "amount": amount, "expires_in": expires_in},
            key=idempotency_key,
            answer=answer,
        )

    async def get_hold(self, hold: str, /, *, answer: Answer | None = None) -> _types.Hold:
        """Read a hold. See :meth:`fairlead.Client.get_hold`."""
        return await self._invoke("GET", _path("/v1/holds/{id}", {"id": hold}), _types.Hold, answer=answer)

    async def capture_hold(
        self,
        hold: str,
        /,
        *,
        to: str,
        amount: int | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Hold:
        """Pay from a hold; what is not captured is released. See :meth:`fairlead.Client.capture_hold`."""
        return await self._invoke(
            "POST",
            _path("/v1/holds/{id}/capture", {"id": hold}),
            _types.Hold,
            body={"to": to, "amount": amount},
            key=idempotency_key,
            answer=answer,
        )

    async def release_hold(
        self,
        hold: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Hold:
        """Give a hold's money back. See :meth:`fairlead.Client.release_hold`."""
        return await self._invoke(
            "POST",
            _path("/v1/holds/{id}/release", {"id": hold}),
            _types.Hold,
            key=idempotency_key,
            answer=answer,
        )

    async def in_doubt(self, *, answer: Answer | None = None) -> _types.Doubts:
        """List the prepared transactions of this coordinator's in every ledger's database. See :meth:`fairlead.Client.in_doubt`."""
        return await self._invoke("GET", "/v1/in-doubt", _types.Doubts, answer=answer)

    async def adopt(self, *, idempotency_key: str | None = None, answer: Answer | None = None) -> _types.Adoption:
        """Let this log, which is a copy or was restored, end the coordinator's prepared transactions from now on. See :meth:`fairlead.Client.adopt`."""
        return await self._invoke("POST", "/v1/in-doubt/adopt", _types.Adoption, key=idempotency_key, answer=answer)

    async def integrity(self, *, answer: Answer | None = None) -> _types.Integrity:
        """Check all balances against the entries. See :meth:`fairlead.Client.integrity`."""
        return await self._invoke("GET", "/v1/integrity", _types.Integrity, answer=answer)

    def api_keys(self, *, limit: int = 200) -> AsyncIterator[_types.Key]:
        """List API keys, oldest first. See :meth:`fairlead.Client.api_keys`."""
        return self._pages("/v1/keys", _types.Key, {}, limit)

    async def register_key(
        self,
        *,
        hash: str,
        name: str,
        role: Literal["admin", "service", "reader"],
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Key:
        """Register an API key by the hash of its secret. See :meth:`fairlead.Client.register_key`."""
        return await self._invoke(
            "POST",
            "/v1/keys",
            _types.Key,
            body={"hash": hash, "name": name, "role": role},
            key=idempotency_key,
            answer=answer,
        )

    async def revoke_key(
        self,
        key: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Key:
        """Revoke an API key; in force everywhere within 5 s. See :meth:`fairlead.Client.revoke_key`."""
        return await self._invoke(
            "DELETE",
            _path("/v1/keys/{id}", {"id": key}),
            _types.Key,
            key=idempotency_key,
            answer=answer,
        )

    async def locks(self, *, answer: Answer | None = None) -> _types.Locks:
        """See who holds, who waits, and for whom. See :meth:`fairlead.Client.locks`."""
        return await self._invoke("GET", "/v1/locks", _types.Locks, answer=answer)

    async def acquire_lock(
        self,
        *,
        keys: Sequence[str],
        owner: str,
        ttl: str | timedelta,
        wait: str | timedelta | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Lock:
        """Lock all of the keys or none, waiting in line if asked to. See :meth:`fairlead.Client.acquire_lock`."""
        return await self._invoke(
            "POST",
            "/v1/locks",
            _types.Lock,
            body={"keys": keys, "owner": owner, "ttl": ttl, "wait": wait},
            key=idempotency_key,
            answer=answer,
        )

    async def release_lock(
        self,
        lock: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> None:
        """Release a lock that is still held. See :meth:`fairlead.Client.release_lock`."""
        return await self._invoke(
            "DELETE",
            _path("/v1/locks/{id}", {"id": lock}),
            None,
            key=idempotency_key,
            answer=answer,
        )

    async def renew_lock(
        self,
        lock: str,
        /,
        *,
        ttl: str | timedelta | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Lock:
        """Renew a lock that is still held. See :meth:`fairlead.Client.renew_lock`."""
        return await self._invoke(
            "POST",
            _path("/v1/locks/{id}/renew", {"id": lock}),
            _types.Lock,
            body={"ttl": ttl},
            key=idempotency_key,
            answer=answer,
        )

    def multidraws(self, *, limit: int = 200) -> AsyncIterator[_types.MultidrawSummary]:
        """List multi-draws, oldest first. See :meth:`fairlead.Client.multidraws`."""
        return self._pages("/v1/multidraws", _types.MultidrawSummary, {}, limit)

    async def create_multidraw(
        self,
        *,
        count: int,
        lock_key: str,
        async_: bool | None = None,
        prizes: Sequence[_types.WeightedPrize | Mapping[str, Any]] | None = None,
        range: _types.RangeRequest | Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Multidraw:
        """Draw many times; 202 instead of 201 while the operation is running. See :meth:`fairlead.Client.create_multidraw`."""
        return await self._invoke(
            "POST",
            "/v1/multidraws",
            _types.Multidraw,
            body={"count": count, "lock_key": lock_key, "async": async_, "prizes": prizes, "range": range},
            key=idempotency_key,
            answer=answer,
        )

    async def get_multidraw(
        self,
        multidraw: str,
        /,
        *,
        prize_results: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Multidraw:
        """Read a multi-draw. See :meth:`fairlead.Client.get_multidraw`."""
        return await self._invoke(
            "GET",
            _path("/v1/multidraws/{id}", {"id": multidraw}),
            _types.Multidraw,
            query={"prize_results": prize_results},
            answer=answer,
        )

    def multidraw_log(self, multidraw: str, /, *, limit: int = 200) -> AsyncIterator[_types.LogLeaf]:
        """List a multi-draw's leaves in the public log. See :meth:`fairlead.Client.multidraw_log`."""
        return self._pages(_path("/v1/multidraws/{id}/log", {"id": multidraw}), _types.LogLeaf, {}, limit)

    async def multidraw_proof(self, multidraw: str, /, *, answer: Answer | None = None) -> bytes:
        """Read the document that fairlead verify checks. See :meth:`fairlead.Client.multidraw_proof`."""
        return await self._invoke("GET", _path("/v1/multidraws/{id}/proof", {"id": multidraw}), bytes, answer=answer)

    def multidraw_results(
        self,
        multidraw: str,
        /,
        *,
        prize_results: str | None = None,
        limit: int = 10000,
    ) -> AsyncIterator[Any]:
        """List the draws so far, in order: integers, or prizes. See :meth:`fairlead.Client.multidraw_results`."""
        return self._pages(_path("/v1/multidraws/{id}/results", {"id": multidraw}), object, {"prize_results": prize_results}, limit)

    async def resume_multidraw(
        self,
        multidraw: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Multidraw:
        """Go on with an interrupted multi-draw, in the background. See :meth:`fairlead.Client.resume_multidraw`."""
        return await self._invoke(
            "POST",
            _path("/v1/multidraws/{id}/resume", {"id": multidraw}),
            _types.Multidraw,
            key=idempotency_key,
            answer=answer,
        )

    async def rollback_multidraw(
        self,
        multidraw: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Multidraw:
        """End an interrupted or completed multi-draw; its draws stay readable. See :meth:`fairlead.Client.rollback_multidraw`."""
        return await self._invoke(
            "POST",
            _path("/v1/multidraws/{id}/rollback", {"id": multidraw}),
            _types.Multidraw,
            key=idempotency_key,
            answer=answer,
        )

    def publications(self, *, status: str | None = None, limit: int = 200) -> AsyncIterator[_types.Publication]:
        """List publications, oldest first. See :meth:`fairlead.Client.publications`."""
        return self._pages("/v1/publications", _types.Publication, {"status": status}, limit)

    async def create_publication(
        self,
        *,
        payload: Any,
        target: str,
        jitter: str | timedelta | None = None,
        publish_at: datetime | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Publication:
        """Make a publication: scheduled, or a draft without a time. See :meth:`fairlead.Client.create_publication`."""
        return await self._invoke(
            "POST",
            "/v1/publications",
            _types.Publication,
            body={"payload": payload, "target": target, "jitter": jitter, "publish_at": publish_at},
            key=idempotency_key,
            answer=answer,
        )

    async def get_publication(self, publication: str, /, *, answer: Answer | None = None) -> _types.Publication:
        """Read a publication with its payload. See :meth:`fairlead.Client.get_publication`."""
        return await self._invoke(
            "GET",
            _path("/v1/publications/{id}", {"id": publication}),
            _types.Publication,
            answer=answer,
        )

    def attempts(self, publication: str, /, *, limit: int = 200) -> AsyncIterator[_types.Attempt]:
        """List a publication's attempts in order. See :meth:`fairlead.Client.attempts`."""
        return self._pages(_path("/v1/publications/{id}/attempts", {"id": publication}), _types.Attempt, {}, limit)

    async def cancel_publication(
        self,
        publication: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Publication:
        """Cancel a draft or a scheduled publication. See :meth:`fairlead.Client.cancel_publication`."""
        return await self._invoke(
            "POST",
            _path("/v1/publications/{id}/cancel", {"id": publication}),
            _types.Publication,
            key=idempotency_key,
            answer=answer,
        )

    async def publish_now(
        self,
        publication: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Publication:
        """Publish a draft or a scheduled publication now. See :meth:`fairlead.Client.publish_now`."""
        return await self._invoke(
            "POST",
            _path("/v1/publications/{id}/publish", {"id": publication}),
            _types.Publication,
            key=idempotency_key,
            answer=answer,
        )

    async def retry_publication(
        self,
        publication: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Publication:
        """Attempt a failed publication anew. See :meth:`fairlead.Client.retry_publication`."""
        return await self._invoke(
            "POST",
            _path("/v1/publications/{id}/retry", {"id": publication}),
            _types.Publication,
            key=idempotency_key,
            answer=answer,
        )

    async def schedule(
        self,
        publication: str,
        /,
        *,
        publish_at: datetime,
        jitter: str | timedelta | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Publication:
        """Give a draft its time, or a scheduled publication another one. See :meth:`fairlead.Client.schedule`."""
        return await self._invoke(
            "POST",
            _path("/v1/publications/{id}/schedule", {"id": publication}),
            _types.Publication,
            body={"publish_at": publish_at, "jitter": jitter},
            key=idempotency_key,
            answer=answer,
        )

    def sagas(
        self,
        *,
        name: str | None = None,
        status: str | None = None,
        stuck: bool | None = None,
        limit: int = 200,
    ) -> AsyncIterator[_types.Saga]:
        """List operations of several steps, oldest first. See :meth:`fairlead.Client.sagas`."""
        return self._pages("/v1/sagas", _types.Saga, {"name": name, "status": status, "stuck": stuck}, limit)

    async def get_saga(self, saga: str, /, *, answer: Answer | None = None) -> _types.Saga:
        """Read an operation of several steps. See :meth:`fairlead.Client.get_saga`."""
        return await self._invoke("GET", _path("/v1/sagas/{id}", {"id": saga}), _types.Saga, answer=answer)

    async def compensate_saga(
        self,
        saga: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Saga:
        """Give a pending operation up: steps that are not done are cancelled, those that are done are undone. See :meth:`fairlead.Client.compensate_saga`."""
        return await self._invoke(
            "POST",
            _path("/v1/sagas/{id}/compensate", {"id": saga}),
            _types.Saga,
            key=idempotency_key,
            answer=answer,
        )

    async def retry_saga(
        self,
        saga: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Saga:
        """Let a pending operation be tried at once. See :meth:`fairlead.Client.retry_saga`."""
        return await self._invoke(
            "POST",
            _path("/v1/sagas/{id}/retry", {"id": saga}),
            _types.Saga,
            key=idempotency_key,
            answer=answer,
        )

    def subscriptions(self, *, limit: int = 200) -> AsyncIterator[_types.Subscription]:
        """List subscriptions, oldest first. See :meth:`fairlead.Client.subscriptions`."""
        return self._pages("/v1/subscriptions", _types.Subscription, {}, limit)

    async def create_subscription(
        self,
        *,
        name: str,
        target: str,
        topics: Sequence[str],
        envelope: Literal["plain", "cloudevents"] | None = None,
        from_: Literal["now", "start"] | None = None,
        types: Sequence[str] | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Subscription:
        """Subscribe a webhook to the events of topics. See :meth:`fairlead.Client.create_subscription`."""
        return await self._invoke(
            "POST",
            "/v1/subscriptions",
            _types.Subscription,
            body={"name": name, "target": target, "topics": topics, "envelope": envelope, "from": from_, "types": types},
            key=idempotency_key,
            answer=answer,
        )

    async def delete_subscription(
        self,
        subscription: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Subscription:
        """End a subscription for good. See :meth:`fairlead.Client.delete_subscription`."""
        return await self._invoke(
            "DELETE",
            _path("/v1/subscriptions/{id}", {"id": subscription}),
            _types.Subscription,
            key=idempotency_key,
            answer=answer,
        )

    async def get_subscription(self, subscription: str, /, *, answer: Answer | None = None) -> _types.Subscription:
        """Read a subscription. See :meth:`fairlead.Client.get_subscription`."""
        return await self._invoke(
            "GET",
            _path("/v1/subscriptions/{id}", {"id": subscription}),
            _types.Subscription,
            answer=answer,
        )

    async def pause_subscription(
        self,
        subscription: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Subscription:
        """Keep a subscription's events back. See :meth:`fairlead.Client.pause_subscription`."""
        return await self._invoke(
            "POST",
            _path("/v1/subscriptions/{id}/pause", {"id": subscription}),
            _types.Subscription,
            key=idempotency_key,
            answer=answer,
        )

    async def replay_topic(
        self,
        subscription: str,
        /,
        *,
        after: int,
        topic: str,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Subscription:
        """Deliver a topic's events after a number, again or for the first time. See :meth:`fairlead.Client.replay_topic`."""
        return await self._invoke(
            "POST",
            _path("/v1/subscriptions/{id}/replay", {"id": subscription}),
            _types.Subscription,
            body={"after": after, "topic": topic},
            key=idempotency_key,
            answer=answer,
        )

    async def resume_subscription(
        self,
        subscription: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Subscription:
        """Let a paused subscription's events go. See :meth:`fairlead.Client.resume_subscription`."""
        return await self._invoke(
            "POST",
            _path("/v1/subscriptions/{id}/resume", {"id": subscription}),
            _types.Subscription,
            key=idempotency_key,
            answer=answer,
        )

    def subscription_topics(self, subscription: str, /, *, limit: int = 200) -> AsyncIterator[_types.TopicProgress]:
        """List the topics that a subscription has come to, and how far. See :meth:`fairlead.Client.subscription_topics`."""
        return self._pages(_path("/v1/subscriptions/{id}/topics", {"id": subscription}), _types.TopicProgress, {}, limit)

    def targets(self, *, limit: int = 200) -> AsyncIterator[_types.Target]:
        """List targets, oldest first. See :meth:`fairlead.Client.targets`."""
        return self._pages("/v1/targets", _types.Target, {}, limit)

    async def create_target(
        self,
        *,
        kind: Literal["webhook", "deviantart"],
        name: str,
        config: _types.TargetConfig | Mapping[str, Any] | None = None,
        timeout: str | timedelta | None = None,
        url: str | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.MadeTarget:
        """Make a target; its signing secret is shown this once. See :meth:`fairlead.Client.create_target`."""
        return await self._invoke(
            "POST",
            "/v1/targets",
            _types.MadeTarget,
            body={"kind": kind, "name": name, "config": config, "timeout": timeout, "url": url},
            key=idempotency_key,
            answer=answer,
        )

    async def get_target(self, target: str, /, *, answer: Answer | None = None) -> _types.Target:
        """Read a target, and how it is slowed down. See :meth:`fairlead.Client.get_target`."""
        return await self._invoke("GET", _path("/v1/targets/{id}", {"id": target}), _types.Target, answer=answer)

    async def replace_credentials(
        self,
        target: str,
        /,
        *,
        client_id: str | None = None,
        client_secret: str | None = None,
        refresh_token: str | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Target:
        """Give a target new credentials, and resume it. See :meth:`fairlead.Client.replace_credentials`."""
        return await self._invoke(
            "POST",
            _path("/v1/targets/{id}/credentials", {"id": target}),
            _types.Target,
            body={"client_id": client_id, "client_secret": client_secret, "refresh_token": refresh_token},
            key=idempotency_key,
            answer=answer,
        )

    async def pause_target(
        self,
        target: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Target:
        """Keep a target's publications back. See :meth:`fairlead.Client.pause_target`."""
        return await self._invoke(
            "POST",
            _path("/v1/targets/{id}/pause", {"id": target}),
            _types.Target,
            key=idempotency_key,
            answer=answer,
        )

    async def resume_target(
        self,
        target: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Target:
        """Let a paused target's publications go. See :meth:`fairlead.Client.resume_target`."""
        return await self._invoke(
            "POST",
            _path("/v1/targets/{id}/resume", {"id": target}),
            _types.Target,
            key=idempotency_key,
            answer=answer,
        )

    async def rotate_secret(
        self,
        target: str,
        /,
        *,
        overlap: str | timedelta | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.MadeTarget:
        """Replace a webhook's signing secret; the old one signs too for a while. See :meth:`fairlead.Client.rotate_secret`."""
        return await self._invoke(
            "POST",
            _path("/v1/targets/{id}/secret", {"id": target}),
            _types.MadeTarget,
            body={"overlap": overlap},
            key=idempotency_key,
            answer=answer,
        )

    def transfers_by_reference(
        self,
        *,
        reference: str | None = None,
        limit: int = 200,
    ) -> AsyncIterator[_types.Transfer]:
        """Find the deposit, withdrawal or transfer that has completed with a reference. See :meth:`fairlead.Client.transfers_by_reference`."""
        return self._pages("/v1/transfers", _types.Transfer, {"reference": reference}, limit)

    async def transfer(
        self,
        *,
        amount: int | None = None,
        from_: str | None = None,
        legs: Sequence[_types.LegRequest | Mapping[str, Any]] | None = None,
        memo: str | None = None,
        reference: str | None = None,
        to: str | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Transfer:
        """Move money between accounts. See :meth:`fairlead.Client.transfer`."""
        return await self._invoke(
            "POST",
            "/v1/transfers",
            _types.Transfer,
            body={"amount": amount, "from": from_, "legs": legs, "memo": memo, "reference": reference, "to": to},
            key=idempotency_key,
            answer=answer,
        )

    async def get_transfer(self, transfer: str, /, *, answer: Answer | None = None) -> _types.Transfer:
        """Read a transfer. See :meth:`fairlead.Client.get_transfer`."""
        return await self._invoke("GET", _path("/v1/transfers/{id}", {"id": transfer}), _types.Transfer, answer=answer)

    async def withdraw(
        self,
        *,
        account: str,
        amount: int,
        memo: str | None = None,
        reference: str | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Movement:
        """Take money to the outside. See :meth:`fairlead.Client.withdraw`."""
        return await self._invoke(
            "POST",
            "/v1/withdrawals",
            _types.Movement,
            body={"account": account, "amount": amount, "memo": memo, "reference": reference},
            key=idempotency_key,
            answer=answer,
        )
