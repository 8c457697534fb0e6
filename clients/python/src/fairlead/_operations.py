"""A method for every operation.

Made by generate.py from docs/openapi.json: do not edit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

from . import types as _types
from ._codec import path as _path
from ._errors import Answer

#: The names of the methods by operationId.
METHODS = {
    "get-healthz": "healthy",
    "get-p-auctions-id-state": "public_auction",
    "get-p-campaigns-id-positions-position": "public_position",
    "get-p-campaigns-id-state": "public_campaign",
    "get-readyz": "ready",
    "post-accounts": "create_account",
    "get-accounts-id": "get_account",
    "get-accounts-id-aliases": "alias",
    "get-accounts-id-bids": "account_bids",
    "get-accounts-id-entries": "entries",
    "get-accounts-id-holds": "account_holds",
    "get-accounts-id-proof": "account_proof",
    "get-accounts-id-purchases": "account_purchases",
    "get-admin-accounts": "accounts",
    "get-admin-accounts-id-balances": "balances",
    "get-admin-accounts-id-entries": "admin_entries",
    "get-admin-accounts-id-holds": "admin_holds",
    "get-admin-auctions": "admin_auctions",
    "get-admin-auctions-id-bids": "admin_bids",
    "get-admin-auctions-id-chart": "bid_chart",
    "get-admin-audit": "audits",
    "get-admin-automations": "admin_automations",
    "get-admin-automations-id-firings": "admin_firings",
    "get-admin-campaigns": "admin_campaigns",
    "get-admin-campaigns-id-map": "sale_map",
    "get-admin-campaigns-id-purchases": "admin_purchases",
    "get-admin-campaigns-id-sales": "sales",
    "get-admin-database-waits": "database_waits",
    "get-admin-deadlocks": "deadlocks",
    "get-admin-idempotency": "key_record",
    "get-admin-keys": "admin_keys",
    "get-admin-measurements": "measurements",
    "get-admin-multidraws": "admin_multidraws",
    "get-admin-names": "names",
    "get-admin-overview": "overview",
    "get-admin-publications": "admin_publications",
    "get-admin-publications-id-attempts": "admin_attempts",
    "get-admin-sagas": "admin_sagas",
    "get-admin-search": "search",
    "get-admin-targets": "admin_targets",
    "get-admin-transfers": "transfers",
    "get-auctions": "auctions",
    "post-auctions": "create_auction",
    "get-auctions-id": "get_auction",
    "get-auctions-id-bids": "bids",
    "post-auctions-id-bids": "bid",
    "post-auctions-id-cancel": "cancel_auction",
    "get-auctions-id-leaderboard": "leaderboard",
    "get-auctions-id-log": "auction_log",
    "get-auctions-id-min-winning-bid": "min_winning_bid",
    "post-auctions-id-start": "start_auction",
    "get-auctions-id-winners": "auction_winners",
    "get-automations": "automations",
    "post-automations": "create_automation",
    "get-automations-id": "get_automation",
    "post-automations-id-cancel": "cancel_automation",
    "get-automations-id-firings": "firings",
    "post-automations-id-pause": "pause_automation",
    "post-automations-id-resume": "resume_automation",
    "get-campaigns": "campaigns",
    "post-campaigns": "create_campaign",
    "get-campaigns-id": "get_campaign",
    "post-campaigns-id-cancel": "cancel_campaign",
    "get-campaigns-id-draw": "get_draw",
    "post-campaigns-id-draw": "draw",
    "get-campaigns-id-log": "campaign_log",
    "get-campaigns-id-positions": "positions",
    "get-campaigns-id-proof": "proof",
    "get-campaigns-id-proof-positions-position": "inclusion_proof",
    "post-campaigns-id-publish": "publish_campaign",
    "get-campaigns-id-purchases": "purchases",
    "post-campaigns-id-purchases": "buy",
    "get-campaigns-id-seal": "campaign_seal",
    "get-campaigns-id-statistics": "statistics",
    "post-cross-legs": "execute_cross_leg",
    "get-cross-transfers": "cross_transfers",
    "post-cross-transfers": "cross_transfer",
    "get-cross-transfers-id": "get_cross_transfer",
    "post-cross-transfers-id-compensate": "compensate_cross_transfer",
    "post-cross-transfers-id-retry": "retry_cross_transfer",
    "post-deposits": "deposit",
    "post-holds": "hold",
    "get-holds-id": "get_hold",
    "post-holds-id-capture": "capture_hold",
    "post-holds-id-release": "release_hold",
    "get-in-doubt": "in_doubt",
    "post-in-doubt-adopt": "adopt",
    "get-integrity": "integrity",
    "get-keys": "api_keys",
    "post-keys": "register_key",
    "delete-keys-id": "revoke_key",
    "get-locks": "locks",
    "post-locks": "acquire_lock",
    "delete-locks-id": "release_lock",
    "post-locks-id-renew": "renew_lock",
    "get-multidraws": "multidraws",
    "post-multidraws": "create_multidraw",
    "get-multidraws-id": "get_multidraw",
    "get-multidraws-id-log": "multidraw_log",
    "get-multidraws-id-proof": "multidraw_proof",
    "get-multidraws-id-results": "multidraw_results",
    "post-multidraws-id-resume": "resume_multidraw",
    "post-multidraws-id-rollback": "rollback_multidraw",
    "get-publications": "publications",
    "post-publications": "create_publication",
    "get-publications-id": "get_publication",
    "get-publications-id-attempts": "attempts",
    "post-publications-id-cancel": "cancel_publication",
    "post-publications-id-publish": "publish_now",
    "post-publications-id-retry": "retry_publication",
    "post-publications-id-schedule": "schedule",
    "get-sagas": "sagas",
    "get-sagas-id": "get_saga",
    "post-sagas-id-compensate": "compensate_saga",
    "post-sagas-id-retry": "retry_saga",
    "get-subscriptions": "subscriptions",
    "post-subscriptions": "create_subscription",
    "delete-subscriptions-id": "delete_subscription",
    "get-subscriptions-id": "get_subscription",
    "post-subscriptions-id-pause": "pause_subscription",
    "post-subscriptions-id-replay": "replay_topic",
    "post-subscriptions-id-resume": "resume_subscription",
    "get-subscriptions-id-topics": "subscription_topics",
    "get-targets": "targets",
    "post-targets": "create_target",
    "get-targets-id": "get_target",
    "post-targets-id-credentials": "replace_credentials",
    "post-targets-id-pause": "pause_target",
    "post-targets-id-resume": "resume_target",
    "post-targets-id-secret": "rotate_secret",
    "get-transfers": "transfers_by_reference",
    "post-transfers": "transfer",
    "get-transfers-id": "get_transfer",
    "post-withdrawals": "withdraw",
}

T = TypeVar("T")


class Operations:
    """The operations. Client adds how they are sent."""

    def _invoke(
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

    def _pages(self, path: str, kind: type[T], query: Mapping[str, Any], limit: int) -> Iterator[T]:
        raise NotImplementedError

    def healthy(self, *, answer: Answer | None = None) -> _types.Health:
        """Is the process alive.

        Answers as long as the process runs, whatever the database does. Restart a process that doesn't answer.
        """
        return self._invoke("GET", "/healthz", _types.Health, answer=answer)

    def public_auction(self, auction: str, /, *, answer: Answer | None = None) -> _types.PublicAuction:
        """Read what an auction's public page shows.

        What the page shows, as JSON. The page asks each second, and each 15 s once nothing changes any more.
        """
        return self._invoke(
            "GET",
            _path("/p/auctions/{id}/state", {"id": auction}),
            _types.PublicAuction,
            answer=answer,
        )

    def public_position(
        self,
        campaign: str,
        position: str,
        /,
        *,
        answer: Answer | None = None,
    ) -> _types.PublicPosition:
        """Read that a position was sealed, and by which alias it was bought.

        Proves that a position was in the sealed set, with the alias of its buyer.
        """
        return self._invoke(
            "GET",
            _path("/p/campaigns/{id}/positions/{position}", {"id": campaign, "position": position}),
            _types.PublicPosition,
            answer=answer,
        )

    def public_campaign(self, campaign: str, /, *, answer: Answer | None = None) -> _types.PublicCampaign:
        """Read what a campaign's public page shows.

        What the page shows, as JSON. The page asks each second, and each 15 s once nothing changes any more.
        """
        return self._invoke(
            "GET",
            _path("/p/campaigns/{id}/state", {"id": campaign}),
            _types.PublicCampaign,
            answer=answer,
        )

    def ready(self, *, answer: Answer | None = None) -> _types.Health:
        """Are commands served.

        Answers 200 when a small write was committed within 2 s, else 503 with a reason. Send requests to servers that
        are ready.
        """
        return self._invoke("GET", "/readyz", _types.Health, answer=answer)

    def create_account(
        self,
        *,
        currency: str,
        id: str,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Account:
        """Open an account.

        Opens an account in one currency, with a balance of zero. You choose the id, so a repeat finds the account that
        exists.

        For admin, service keys.

        id: the caller's name for the account
        """
        return self._invoke(
            "POST",
            "/v1/accounts",
            _types.Account,
            body={"currency": currency, "id": id},
            key=idempotency_key,
            answer=answer,
        )

    def get_account(self, account: str, /, *, answer: Answer | None = None) -> _types.Account:
        """Read an account.

        Shows the balance: `available` can be spent, `held` is set aside by open holds. `version` grows with each
        change.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._invoke("GET", _path("/v1/accounts/{id}", {"id": account}), _types.Account, answer=answer)

    def alias(self, account: str, /, *, topic: str | None = None, answer: Answer | None = None) -> _types.Alias:
        """Read what public pages call an account.

        Public pages and the public log show aliases in place of accounts' names. This shows an account's own alias in
        one topic, with the salt that proves it. Pages show its first 8 digits.

        For users, within what is theirs or published, and for admin, service and reader keys.

        topic: campaign:ID or auction:ID
        """
        return self._invoke(
            "GET",
            _path("/v1/accounts/{id}/aliases", {"id": account}),
            _types.Alias,
            query={"topic": topic},
            answer=answer,
        )

    def account_bids(self, account: str, /, *, limit: int = 200) -> Iterator[_types.AccountBid]:
        """List an account's standing bids in auctions under way, oldest auction first.

        Shows, for each open auction in which the account has a standing bid, its rank, whether it now wins, and when
        the round ends. Ask it again after a reconnect.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._pages(_path("/v1/accounts/{id}/bids", {"id": account}), _types.AccountBid, {}, limit)

    def entries(self, account: str, /, *, limit: int = 200) -> Iterator[_types.Entry]:
        """List an account's entries, oldest first.

        Each entry is one side of a transfer, signed. All entries sum to available + held, and nothing is ever changed
        or deleted.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._pages(_path("/v1/accounts/{id}/entries", {"id": account}), _types.Entry, {}, limit)

    def account_holds(self, account: str, /, *, limit: int = 200) -> Iterator[_types.OpenHold]:
        """List an account's open holds, newest first.

        Lists money that is set aside at present. `owner` names the auction or other part of the system that alone can
        end a hold.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._pages(_path("/v1/accounts/{id}/holds", {"id": account}), _types.OpenHold, {}, limit)

    def account_proof(
        self,
        account: str,
        /,
        *,
        at: str | None = None,
        answer: Answer | None = None,
    ) -> _types.AccountProof:
        """Prove an account's balance by the public log.

        Shows the account's balance in the newest closing of the books that is not after `at`, with the hashes that lead
        from it to the closing in the public log, and from there to a signed checkpoint. The books are closed each
        minute; the accounts of the last ten closings are kept, of the last in each hour for a day, and of the last in
        each day for a month.

        For users, within what is theirs or published, and for admin, service and reader keys.

        at: time of the balance: it is that of the newest closing of the books not after this; now when absent
        """
        return self._invoke(
            "GET",
            _path("/v1/accounts/{id}/proof", {"id": account}),
            _types.AccountProof,
            query={"at": at},
            answer=answer,
        )

    def account_purchases(self, account: str, /, *, limit: int = 200) -> Iterator[_types.Purchase]:
        """List an account's purchases in all campaigns, newest first.

        Lists every position that the account has bought, in campaigns that were cancelled, too. A cancelled campaign
        has refunded its purchases. Archived ones are missing.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._pages(_path("/v1/accounts/{id}/purchases", {"id": account}), _types.Purchase, {}, limit)

    def accounts(self, *, prefix: str | None = None, limit: int = 200) -> Iterator[_types.Account]:
        """List accounts by id.

        Lists accounts, those whose id begins with `prefix` if that is given.

        For admin and reader keys.

        prefix: only those whose id begins with this
        """
        return self._pages("/v1/admin/accounts", _types.Account, {"prefix": prefix}, limit)

    def balances(self, account: str, /, *, answer: Answer | None = None) -> _types.Balances:
        """Read an account's balance over the last hour.

        Returns points of a chart: an account's balance over the last hour.

        For admin and reader keys.
        """
        return self._invoke(
            "GET",
            _path("/v1/admin/accounts/{id}/balances", {"id": account}),
            _types.Balances,
            answer=answer,
        )

    def admin_entries(self, account: str, /, *, limit: int = 200) -> Iterator[_types.AccountEntry]:
        """List an account's entries with their balances, newest first.

        Lists entries with the balance after each, and the other side of its transfer.

        For admin and reader keys.
        """
        return self._pages(_path("/v1/admin/accounts/{id}/entries", {"id": account}), _types.AccountEntry, {}, limit)

    def admin_holds(self, account: str, /, *, limit: int = 200) -> Iterator[_types.OpenHold]:
        """List an account's open holds, newest first.

        Lists open holds for the console.

        For admin and reader keys.
        """
        return self._pages(_path("/v1/admin/accounts/{id}/holds", {"id": account}), _types.OpenHold, {}, limit)

    def admin_auctions(self, *, status: str | None = None, limit: int = 200) -> Iterator[_types.AuctionSummary]:
        """List auctions, newest first.

        Lists auctions for the console, by `status` if that is given.

        For admin and reader keys.

        status: only those of this status
        """
        return self._pages("/v1/admin/auctions", _types.AuctionSummary, {"status": status}, limit)

    def admin_bids(
        self,
        auction: str,
        /,
        *,
        account: str | None = None,
        limit: int = 200,
    ) -> Iterator[_types.PlacedBid]:
        """List bids, newest first.

        Lists the bids of an auction for the console.

        For admin and reader keys.

        account: only those of this account, which are looked for among all of the auction
        """
        return self._pages(_path("/v1/admin/auctions/{id}/bids", {"id": auction}), _types.PlacedBid, {"account": account}, limit)

    def bid_chart(self, auction: str, /, *, answer: Answer | None = None) -> _types.BidChart:
        """Read bids and rounds for a chart: every bid, or an even sample of many.

        Returns points of a chart: bids, and when rounds began, were extended and ended.

        For admin and reader keys.
        """
        return self._invoke(
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
    ) -> Iterator[_types.Audit]:
        """List administrative actions, newest first.

        Lists what admin keys have done, to what, and in which request. Narrow it by one of `action`, `object` and
        `principal`.

        For admin and reader keys.

        action: only this action, such as campaign.publish
        object: only those on the object with this id
        principal: only those of this principal, such as key:ID
        """
        return self._pages("/v1/admin/audit", _types.Audit, {"action": action, "object": object, "principal": principal}, limit)

    def admin_automations(self, *, limit: int = 200) -> Iterator[_types.Automation]:
        """List automations, newest first.

        Lists automations for the console.

        For admin and reader keys.
        """
        return self._pages("/v1/admin/automations", _types.Automation, {}, limit)

    def admin_firings(self, automation: str, /, *, limit: int = 200) -> Iterator[_types.Firing]:
        """List what an automation has fired, newest first.

        Lists what an automation has fired for the console.

        For admin and reader keys.
        """
        return self._pages(_path("/v1/admin/automations/{id}/firings", {"id": automation}), _types.Firing, {}, limit)

    def admin_campaigns(self, *, status: str | None = None, limit: int = 200) -> Iterator[_types.CampaignSummary]:
        """List campaigns, newest first.

        Lists campaigns for the console, drafts too, by `status` if that is given.

        For admin and reader keys.

        status: only those of this status
        """
        return self._pages("/v1/admin/campaigns", _types.CampaignSummary, {"status": status}, limit)

    def sale_map(self, campaign: str, /, *, answer: Answer | None = None) -> _types.SaleMap:
        """Read which positions are sold.

        Shows which positions are sold as one bit each, in base64, in the order of layers and numbers.

        For admin and reader keys.
        """
        return self._invoke(
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
    ) -> Iterator[_types.Purchase]:
        """List a campaign's purchases, newest first.

        Lists the purchases of a campaign for the console.

        For admin and reader keys.

        account: only those of this account
        """
        return self._pages(_path("/v1/admin/campaigns/{id}/purchases", {"id": campaign}), _types.Purchase, {"account": account}, limit)

    def sales(self, campaign: str, /, *, answer: Answer | None = None) -> _types.Sales:
        """Read a campaign's sales over time: every one, or an even sample of many.

        Returns points of a chart: how many positions were sold when.

        For admin and reader keys.
        """
        return self._invoke(
            "GET",
            _path("/v1/admin/campaigns/{id}/sales", {"id": campaign}),
            _types.Sales,
            answer=answer,
        )

    def database_waits(self, *, answer: Answer | None = None) -> _types.DatabaseWaits:
        """See which sessions of the database wait for PostgreSQL's own locks, and for whom.

        Lists sessions of the database that wait for a row or table of another session, which may be no part of
        Fairlead.

        For admin and reader keys.
        """
        return self._invoke("GET", "/v1/admin/database-waits", _types.DatabaseWaits, answer=answer)

    def deadlocks(self, *, answer: Answer | None = None) -> _types.Deadlocks:
        """Read which deadlocks this process has broken, newest first.

        Lists deadlocks among locks that this process has broken: the owners, the keys, and the victim.

        For admin and reader keys.
        """
        return self._invoke("GET", "/v1/admin/deadlocks", _types.Deadlocks, answer=answer)

    def key_record(
        self,
        *,
        key: str | None = None,
        method: str | None = None,
        path: str | None = None,
        principal: str | None = None,
        answer: Answer | None = None,
    ) -> _types.KeyRecord:
        """Read what is kept under an idempotency key.

        Shows the answer that is kept under a `key` of a `principal`, `method` and `path`: what a repeat would get.

        For admin and reader keys.

        key: the key
        method: of the request, such as POST
        path: of the request, such as /v1/transfers
        principal: who sent it, such as key:ID or user:SUB
        """
        return self._invoke(
            "GET",
            "/v1/admin/idempotency",
            _types.KeyRecord,
            query={"key": key, "method": method, "path": path, "principal": principal},
            answer=answer,
        )

    def admin_keys(self, *, limit: int = 200) -> Iterator[_types.Key]:
        """List API keys, newest first.

        Lists API keys for the console, revoked ones too.

        For admin and reader keys.
        """
        return self._pages("/v1/admin/keys", _types.Key, {}, limit)

    def measurements(self, *, since: str | None = None, answer: Answer | None = None) -> _types.Measurements:
        """Read what this process measured over the last hour.

        Returns this process's measurements of the last hour, one every 10 s. `since` asks for those that you don't
        have.

        For admin and reader keys.

        since: the last of an earlier answer: only the samples after it
        """
        return self._invoke(
            "GET",
            "/v1/admin/measurements",
            _types.Measurements,
            query={"since": since},
            answer=answer,
        )

    def admin_multidraws(self, *, limit: int = 200) -> Iterator[_types.MultidrawSummary]:
        """List multi-draws, newest first.

        Lists multi-draws for the console.

        For admin and reader keys.
        """
        return self._pages("/v1/admin/multidraws", _types.MultidrawSummary, {}, limit)

    def names(self, *, ids: str | None = None, answer: Answer | None = None) -> _types.Found:
        """Read the names of things by their ids.

        Tells what ids are of: the kind, name and status of each.

        For admin and reader keys.

        ids: up to 200 ids, with commas between them
        """
        return self._invoke("GET", "/v1/admin/names", _types.Found, query={"ids": ids}, answer=answer)

    def overview(self, *, answer: Answer | None = None) -> _types.Overview:
        """Read what this process measured, and what waits in the whole system.

        Sums up what this process measured since its start, and what waits in the whole system. The console and
        `fairlead top` show it.

        For admin and reader keys.
        """
        return self._invoke("GET", "/v1/admin/overview", _types.Overview, answer=answer)

    def admin_publications(
        self,
        *,
        status: str | None = None,
        target: str | None = None,
        error: str | None = None,
        cause: str | None = None,
        limit: int = 200,
    ) -> Iterator[_types.Publication]:
        """List publications, newest first.

        Lists publications for the console, by `status` and `target` if they are given, or failed ones by `error` or
        `cause`.

        For admin and reader keys.

        status: only those of this status
        target: only those of the target of this name
        error: only failed ones whose last error is this one
        cause: only failed ones whose last attempt failed for this; attempts of servers before this filter have none
        """
        return self._pages("/v1/admin/publications", _types.Publication, {"status": status, "target": target, "error": error, "cause": cause}, limit)

    def admin_attempts(self, publication: str, /, *, limit: int = 200) -> Iterator[_types.Attempt]:
        """List a publication's attempts, newest first.

        Lists a publication's attempts for the console.

        For admin and reader keys.
        """
        return self._pages(_path("/v1/admin/publications/{id}/attempts", {"id": publication}), _types.Attempt, {}, limit)

    def admin_sagas(
        self,
        *,
        account: str | None = None,
        name: str | None = None,
        status: str | None = None,
        stuck: bool | None = None,
        limit: int = 200,
    ) -> Iterator[_types.Saga]:
        """List operations of several steps, newest first.

        Lists operations of several steps for the console.

        For admin and reader keys.

        account: only transfers from or to this account: its id, or LEDGER/ID for one of another ledger; not beside the
            other filters
        name: only those of this definition, such as cross-transfer
        status: only those of this status: pending, completed, failed or compensated
        stuck: true: only stuck ones, which have failed ten times in a row
        """
        return self._pages("/v1/admin/sagas", _types.Saga, {"account": account, "name": name, "status": status, "stuck": stuck}, limit)

    def search(self, *, q: str | None = None, answer: Answer | None = None) -> _types.Found:
        """Find things by id, reference or name.

        Finds accounts, campaigns, auctions, transfers and others by an id, its beginning, a reference or a name.

        For admin and reader keys.

        q: an id, the reference of a transfer, the beginning of an account's id, or a part of a name; names are looked
            through among the newest 1,000 of each kind, and the beginnings of all campaigns' and auctions' names
        """
        return self._invoke("GET", "/v1/admin/search", _types.Found, query={"q": q}, answer=answer)

    def admin_targets(self, *, limit: int = 200) -> Iterator[_types.Target]:
        """List targets, newest first.

        Lists targets and how they fare for the console.

        For admin and reader keys.
        """
        return self._pages("/v1/admin/targets", _types.Target, {}, limit)

    def transfers(self, *, status: str | None = None, limit: int = 200) -> Iterator[_types.Transfer]:
        """List transfers, newest first.

        Lists transfers, deposits and withdrawals, by `status` if that is given.

        For admin and reader keys.

        status: only those of this status
        """
        return self._pages("/v1/admin/transfers", _types.Transfer, {"status": status}, limit)

    def auctions(self, *, limit: int = 200) -> Iterator[_types.AuctionSummary]:
        """List auctions, oldest first.

        Lists auctions. Users don't see those that have not started.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._pages("/v1/auctions", _types.AuctionSummary, {}, limit)

    def create_auction(
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
        """Make an auction, pending.

        Makes an auction of one or more rounds, not yet open. In each round the highest bids win, as many as `winners`
        says.

        For admin, service keys.

        seller: the account that winners pay
        anti_snipe: absent, or with any zero: rounds are not extended
        cooldown: Go duration between the bids of one account, 1s when absent, 0s for none
        min_bid: minor units, 1 when absent
        min_increment: least by which a raise exceeds the bid before it, 1 when absent
        unique_amounts: whether no two active bids may have one amount, true when absent
        """
        return self._invoke(
            "POST",
            "/v1/auctions",
            _types.Auction,
            body={"currency": currency, "rounds": rounds, "seller": seller, "title": title, "anti_snipe": anti_snipe, "cooldown": cooldown, "min_bid": min_bid, "min_increment": min_increment, "unique_amounts": unique_amounts},
            key=idempotency_key,
            answer=answer,
        )

    def get_auction(self, auction: str, /, *, answer: Answer | None = None) -> _types.Auction:
        """Read an auction.

        Shows an auction's rounds, and `seq`, the number of its last event.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._invoke("GET", _path("/v1/auctions/{id}", {"id": auction}), _types.Auction, answer=answer)

    def bids(self, auction: str, /, *, limit: int = 200) -> Iterator[_types.PlacedBid]:
        """List accepted bids in order.

        Lists every accepted bid and raise, with the number of its event.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._pages(_path("/v1/auctions/{id}/bids", {"id": auction}), _types.PlacedBid, {}, limit)

    def bid(
        self,
        auction: str,
        /,
        *,
        account: str,
        amount: int,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Bid:
        """Bid, or raise the account's bid.

        Bids, and holds the whole amount. A second bid of the account raises the first, and needs money for the
        difference alone. A bid near the round's end may extend it.

        For users, within what is theirs or published, and for admin, service keys.

        amount: minor units, of the whole bid and not of the raise
        """
        return self._invoke(
            "POST",
            _path("/v1/auctions/{id}/bids", {"id": auction}),
            _types.Bid,
            body={"account": account, "amount": amount},
            key=idempotency_key,
            answer=answer,
        )

    def cancel_auction(
        self,
        auction: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Auction:
        """End an auction, with every hold released.

        Ends an auction. Every standing bid's money is available again when the answer comes.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/auctions/{id}/cancel", {"id": auction}),
            _types.Auction,
            key=idempotency_key,
            answer=answer,
        )

    def leaderboard(self, auction: str, /, *, limit: int = 200) -> Iterator[_types.Rank]:
        """List standing bids by rank: of the open round, or of the last one after the end.

        Lists standing bids, the highest first, and says which ones now win.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._pages(_path("/v1/auctions/{id}/leaderboard", {"id": auction}), _types.Rank, {}, limit)

    def auction_log(self, auction: str, /, *, limit: int = 200) -> Iterator[_types.LogLeaf]:
        """List an auction's leaves in the public log.

        Lists the auction's leaves, each with the hashes that prove that it is in the log under the page's checkpoint.
        Accounts have aliases there.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._pages(_path("/v1/auctions/{id}/log", {"id": auction}), _types.LogLeaf, {}, limit)

    def min_winning_bid(self, auction: str, /, *, answer: Answer | None = None) -> _types.MinWinningBid:
        """Read the least new bid that would now win.

        Shows what a new bidder has to offer: the minimum while places are free, else one more than the lowest winning
        bid. Where amounts are unique, that may be taken: `free_amount` is what to bid.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._invoke(
            "GET",
            _path("/v1/auctions/{id}/min-winning-bid", {"id": auction}),
            _types.MinWinningBid,
            answer=answer,
        )

    def start_auction(
        self,
        auction: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Auction:
        """Open the first round.

        Opens the first round of a pending auction, once. Its clock runs from the answer on.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/auctions/{id}/start", {"id": auction}),
            _types.Auction,
            key=idempotency_key,
            answer=answer,
        )

    def auction_winners(self, auction: str, /, *, limit: int = 200) -> Iterator[_types.AuctionWinner]:
        """List winners by round and rank.

        Lists who won in the rounds that ended, and what they paid.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._pages(_path("/v1/auctions/{id}/winners", {"id": auction}), _types.AuctionWinner, {}, limit)

    def automations(self, *, limit: int = 200) -> Iterator[_types.Automation]:
        """List automations, oldest first.

        Lists automations with their rules.

        For admin, service and reader keys.
        """
        return self._pages("/v1/automations", _types.Automation, {}, limit)

    def create_automation(
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
        """Make an automation: a rule that schedules drafts of a target.

        Publishes a target's drafts by a rule: on weekdays at times of a time zone, or every so often.

        For admin, service keys.

        target: the name of the target whose drafts are taken
        daily_quota: most drafts that it schedules in a day, 1 to 1000; no limit when absent
        every: Go duration from 1m to 8784h, in place of times
        jitter: Go duration up to 5m: a random part of it is added to the time
        pick: which draft: a random one, the oldest, the newest; first when absent
        starts_at: of a rule with every: when it first fires, and what the interval is counted from; now when absent,
            and then it first fires an interval later
        time_zone: IANA name, by whose clocks the times and the quota's days are; UTC when absent
        times: times of the day, HH:MM or HH:MM:SS, up to 48
        weekdays: mon to sun; every day when absent, of a rule with times
        """
        return self._invoke(
            "POST",
            "/v1/automations",
            _types.Automation,
            body={"name": name, "target": target, "daily_quota": daily_quota, "every": every, "jitter": jitter, "pick": pick, "starts_at": starts_at, "time_zone": time_zone, "times": times, "weekdays": weekdays},
            key=idempotency_key,
            answer=answer,
        )

    def get_automation(self, automation: str, /, *, answer: Answer | None = None) -> _types.Automation:
        """Read an automation, and when it fires next.

        Shows an automation and `next_at`, when it fires next.

        For admin, service and reader keys.
        """
        return self._invoke("GET", _path("/v1/automations/{id}", {"id": automation}), _types.Automation, answer=answer)

    def cancel_automation(
        self,
        automation: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Automation:
        """End an automation for good.

        Ends a rule for good. What it has scheduled stays scheduled.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/automations/{id}/cancel", {"id": automation}),
            _types.Automation,
            key=idempotency_key,
            answer=answer,
        )

    def firings(self, automation: str, /, *, limit: int = 200) -> Iterator[_types.Firing]:
        """List what an automation has fired, in order.

        Lists when a rule has fired, and which draft that scheduled, if there was any.

        For admin, service and reader keys.
        """
        return self._pages(_path("/v1/automations/{id}/firings", {"id": automation}), _types.Firing, {}, limit)

    def pause_automation(
        self,
        automation: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Automation:
        """Keep an automation from firing.

        Stops a rule until it is resumed. What it has scheduled stays scheduled.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/automations/{id}/pause", {"id": automation}),
            _types.Automation,
            key=idempotency_key,
            answer=answer,
        )

    def resume_automation(
        self,
        automation: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Automation:
        """Let a paused automation fire again, from its next time on.

        Starts a paused rule. Times that passed meanwhile are not made up for.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/automations/{id}/resume", {"id": automation}),
            _types.Automation,
            key=idempotency_key,
            answer=answer,
        )

    def campaigns(self, *, limit: int = 200) -> Iterator[_types.CampaignSummary]:
        """List campaigns, oldest first.

        Lists campaigns. Users don't see drafts.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._pages("/v1/campaigns", _types.CampaignSummary, {}, limit)

    def create_campaign(
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
        """Make a campaign, pending.

        Makes a campaign as a draft: its positions, price and prizes. `base_length` n makes a triangle of n layers,
        where layer k has k positions; `layers` lists them. `commitment` binds the server to its seed from now on.

        For admin, service keys.

        beneficiary: the account that is paid at completion
        base_length: of a triangle: layer k has k positions
        draw: beacon: what is sold is sealed at sell-out, and a future round of a public beacon decides
        layers: explicit layers, instead of base_length
        price: minor units; may be absent when every layer has its own
        purchase_limit: positions an account may buy
        witnesses: how many witnesses of the public log must have cosigned the seal before the beacon's round; in beacon
            mode only
        """
        return self._invoke(
            "POST",
            "/v1/campaigns",
            _types.Campaign,
            body={"beneficiary": beneficiary, "currency": currency, "name": name, "prizes": prizes, "base_length": base_length, "draw": draw, "layers": layers, "price": price, "purchase_limit": purchase_limit, "witnesses": witnesses},
            key=idempotency_key,
            answer=answer,
        )

    def get_campaign(self, campaign: str, /, *, answer: Answer | None = None) -> _types.Campaign:
        """Read a campaign.

        Shows a campaign's status and how much of each layer is sold.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._invoke("GET", _path("/v1/campaigns/{id}", {"id": campaign}), _types.Campaign, answer=answer)

    def cancel_campaign(
        self,
        campaign: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Campaign:
        """End a campaign that was not drawn, with refunds.

        Ends a campaign that was not drawn. Every buyer has the price back when the answer comes.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/campaigns/{id}/cancel", {"id": campaign}),
            _types.Campaign,
            key=idempotency_key,
            answer=answer,
        )

    def get_draw(self, campaign: str, /, *, answer: Answer | None = None) -> _types.Draw:
        """Read the draw.

        Shows who won. In instant mode it is there when the last purchase is answered.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._invoke("GET", _path("/v1/campaigns/{id}/draw", {"id": campaign}), _types.Draw, answer=answer)

    def draw(
        self,
        campaign: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Draw:
        """Ask for the draw: the same one for ever.

        Asks for the draw of a campaign that is sold out. There is one draw for ever: whoever asks, and however often,
        gets the same.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/campaigns/{id}/draw", {"id": campaign}),
            _types.Draw,
            key=idempotency_key,
            answer=answer,
        )

    def campaign_log(self, campaign: str, /, *, limit: int = 200) -> Iterator[_types.LogLeaf]:
        """List a campaign's leaves in the public log.

        Lists the campaign's leaves, each with the hashes that prove that it is in the log under the page's checkpoint.
        A fact is a leaf within a second of its commit.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._pages(_path("/v1/campaigns/{id}/log", {"id": campaign}), _types.LogLeaf, {}, limit)

    def positions(self, campaign: str, /, *, limit: int = 200) -> Iterator[_types.Position]:
        """List positions by layer and number.

        Lists every position, sold or not. Users see the account of their own positions alone. Where the purchases were
        archived, they are not found.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._pages(_path("/v1/campaigns/{id}/positions", {"id": campaign}), _types.Position, {}, limit)

    def proof(self, campaign: str, /, *, answer: Answer | None = None) -> bytes:
        """Read the document that fairlead verify checks.

        Returns the seed and everything else that the winners follow from. Save it, and `fairlead verify` recomputes the
        draw offline. It is not found when the purchases were archived.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._invoke("GET", _path("/v1/campaigns/{id}/proof", {"id": campaign}), bytes, answer=answer)

    def inclusion_proof(self, campaign: str, position: str, /, *, answer: Answer | None = None) -> bytes:
        """Read the proof that a position was sealed.

        Returns hashes that lead from one position to the sealed root, so that an entrant can check to have taken part.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._invoke(
            "GET",
            _path("/v1/campaigns/{id}/proof/positions/{position}", {"id": campaign, "position": position}),
            bytes,
            answer=answer,
        )

    def publish_campaign(
        self,
        campaign: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Campaign:
        """Open the sale.

        Opens the sale of a pending campaign, once.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/campaigns/{id}/publish", {"id": campaign}),
            _types.Campaign,
            key=idempotency_key,
            answer=answer,
        )

    def purchases(self, campaign: str, /, *, limit: int = 200) -> Iterator[_types.Purchase]:
        """List purchases in the order of sale; to a user, its own.

        Lists purchases. Users see their own. Where they were archived, they are not found.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._pages(_path("/v1/campaigns/{id}/purchases", {"id": campaign}), _types.Purchase, {}, limit)

    def buy(
        self,
        campaign: str,
        /,
        *,
        account: str,
        layer: int | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Purchase:
        """Buy a random free position.

        Sells a random free position, of `layer` if that is given. The price moves to the campaign's escrow in the same
        commit. The last sale also makes the draw.

        For users, within what is theirs or published, and for admin, service keys.

        layer: absent: a position of any layer
        """
        return self._invoke(
            "POST",
            _path("/v1/campaigns/{id}/purchases", {"id": campaign}),
            _types.Purchase,
            body={"account": account, "layer": layer},
            key=idempotency_key,
            answer=answer,
        )

    def campaign_seal(self, campaign: str, /, *, answer: Answer | None = None) -> _types.Seal:
        """Prove that witnesses have seen a campaign's seal before its round.

        Returns the leaf with the campaign's root and round, the hashes that prove it under a checkpoint, and that
        checkpoint as witnesses have cosigned it before the round was due. The proof of the draw carries the same.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._invoke("GET", _path("/v1/campaigns/{id}/seal", {"id": campaign}), _types.Seal, answer=answer)

    def statistics(self, campaign: str, /, *, answer: Answer | None = None) -> _types.Statistics:
        """Read what the sales add up to.

        Adds the sales up: share sold, buyers, revenue, first and last sale. They are not found where they were
        archived.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._invoke(
            "GET",
            _path("/v1/campaigns/{id}/statistics", {"id": campaign}),
            _types.Statistics,
            answer=answer,
        )

    def execute_cross_leg(
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
        """Execute, once, this ledger's leg of another server's transfer.

        One server asks another to execute its ledger's leg of a transfer. Programs use `POST /v1/cross-transfers`
        instead.

        For admin, service keys.

        amount: minor units
        from_: the ledger is local where it is this server's
        saga: the transfer that it is part of, at the server which makes it
        to: the ledger is local where it is this server's
        cancel: refuse the leg with this reason unless it was done already
        undo: undo the leg, which must have been done
        """
        return self._invoke(
            "POST",
            "/v1/cross-legs",
            _types.CrossLeg,
            body={"amount": amount, "currency": currency, "from": from_, "saga": saga, "step": step, "to": to, "cancel": cancel, "undo": undo},
            key=idempotency_key,
            answer=answer,
        )

    def cross_transfers(self, *, stuck: bool | None = None, limit: int = 200) -> Iterator[_types.CrossTransfer]:
        """List transfers between ledgers, oldest first.

        Lists transfers between ledgers. `stuck=true` shows those that need an operator.

        For admin, service and reader keys.

        stuck: true: only stuck ones, which have failed ten times in a row
        """
        return self._pages("/v1/cross-transfers", _types.CrossTransfer, {"stuck": stuck}, limit)

    def cross_transfer(
        self,
        *,
        amount: int,
        from_: _types.CrossEnd | Mapping[str, Any],
        mode: Literal["saga", "twophase"],
        to: _types.CrossEnd | Mapping[str, Any],
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.CrossTransfer:
        """Move money between accounts of different ledgers.

        Moves money between accounts of different ledgers: as a saga, which may be undone, or as a two-phase commit.
        `local` is this server's own ledger. It may answer `pending`; read it until it ends.

        For users, within what is theirs or published, and for admin, service keys.

        amount: minor units
        mode: saga: debit, then credit, compensated where that is refused; twophase: both or neither
        """
        return self._invoke(
            "POST",
            "/v1/cross-transfers",
            _types.CrossTransfer,
            body={"amount": amount, "from": from_, "mode": mode, "to": to},
            key=idempotency_key,
            answer=answer,
        )

    def get_cross_transfer(self, cross_transfer: str, /, *, answer: Answer | None = None) -> _types.CrossTransfer:
        """Read a transfer between ledgers.

        Shows a transfer between ledgers with its steps, each done, undone or failed.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._invoke(
            "GET",
            _path("/v1/cross-transfers/{id}", {"id": cross_transfer}),
            _types.CrossTransfer,
            answer=answer,
        )

    def compensate_cross_transfer(
        self,
        cross_transfer: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.CrossTransfer:
        """Give a pending transfer up: legs that are not done are cancelled, those that are done are undone.

        Gives a pending transfer up. The answer comes at once; the transfer ends as `compensated` when everything done
        is undone.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/cross-transfers/{id}/compensate", {"id": cross_transfer}),
            _types.CrossTransfer,
            key=idempotency_key,
            answer=answer,
        )

    def retry_cross_transfer(
        self,
        cross_transfer: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.CrossTransfer:
        """Let a pending transfer be tried at once.

        Tries a pending transfer now instead of at its next time.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/cross-transfers/{id}/retry", {"id": cross_transfer}),
            _types.CrossTransfer,
            key=idempotency_key,
            answer=answer,
        )

    def deposit(
        self,
        *,
        account: str,
        amount: int,
        memo: str | None = None,
        reference: str | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Movement:
        """Bring money in from the outside.

        Books money that came from outside. With a `reference`, the same deposit under another key moves nothing and
        gets the first answer with 200.

        For admin, service keys.

        amount: minor units
        reference: unique for ever: the same request with it again, under any key, moves nothing
        """
        return self._invoke(
            "POST",
            "/v1/deposits",
            _types.Movement,
            body={"account": account, "amount": amount, "memo": memo, "reference": reference},
            key=idempotency_key,
            answer=answer,
        )

    def hold(
        self,
        *,
        account: str,
        amount: int,
        expires_in: str | timedelta | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Hold:
        """Set money aside.

        Sets money aside: it stays on the account and can't be spent. Without `expires_in` it stays until it is captured
        or released.

        For admin, service keys.

        amount: minor units
        expires_in: Go duration; without it the hold does not expire
        """
        return self._invoke(
            "POST",
            "/v1/holds",
            _types.Hold,
            body={"account": account, "amount": amount, "expires_in": expires_in},
            key=idempotency_key,
            answer=answer,
        )

    def get_hold(self, hold: str, /, *, answer: Answer | None = None) -> _types.Hold:
        """Read a hold.

        Shows a hold and whether it is open, captured, released or expired.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._invoke("GET", _path("/v1/holds/{id}", {"id": hold}), _types.Hold, answer=answer)

    def capture_hold(
        self,
        hold: str,
        /,
        *,
        to: str,
        amount: int | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Hold:
        """Pay from a hold; what is not captured is released.

        Pays from a hold, once. Without `amount` all of it is paid; otherwise the rest is released.

        For admin, service keys.

        amount: minor units; without it all of the hold
        """
        return self._invoke(
            "POST",
            _path("/v1/holds/{id}/capture", {"id": hold}),
            _types.Hold,
            body={"to": to, "amount": amount},
            key=idempotency_key,
            answer=answer,
        )

    def release_hold(
        self,
        hold: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Hold:
        """Give a hold's money back.

        Makes the money available again, once.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/holds/{id}/release", {"id": hold}),
            _types.Hold,
            key=idempotency_key,
            answer=answer,
        )

    def in_doubt(self, *, answer: Answer | None = None) -> _types.Doubts:
        """List the prepared transactions of this coordinator's in every ledger's database.

        Lists transactions that a ledger's database has prepared and not yet ended. It is empty within 30 s of the
        coordinator's return.

        For admin, service and reader keys.
        """
        return self._invoke("GET", "/v1/in-doubt", _types.Doubts, answer=answer)

    def adopt(self, *, idempotency_key: str | None = None, answer: Answer | None = None) -> _types.Adoption:
        """Let this log, which is a copy or was restored, end the coordinator's prepared transactions from now on.

        After a restore from a backup, tells this log to take over its earlier incarnation's prepared transactions. Read
        the runbook first.

        For admin keys.
        """
        return self._invoke("POST", "/v1/in-doubt/adopt", _types.Adoption, key=idempotency_key, answer=answer)

    def integrity(self, *, answer: Answer | None = None) -> _types.Integrity:
        """Check all balances against the entries.

        Compares every balance with the entries, per currency, and names the first account that disagrees. A small
        ledger (up to 8 MB of entries) is counted as a whole for each answer. For a larger one, each answer counts all
        balances, all open holds and the entries since the last closing of the books (`closed_at`), so it finds every
        change to a balance or a hold. A change by hand to an older entry or transfer is found by the next recount of
        everything: `recounted_at` says when the last one began, and the server begins one every `--recount-every`.
        `fairlead integrity` on the database recounts at once. A check that takes longer than 30 s ends with `503
        not_counted`: this can happen before a large ledger's first recount has ended.

        For admin, service and reader keys.
        """
        return self._invoke("GET", "/v1/integrity", _types.Integrity, answer=answer)

    def api_keys(self, *, limit: int = 200) -> Iterator[_types.Key]:
        """List API keys, oldest first.

        Lists keys without their secrets, which the server never has.

        For admin and reader keys.
        """
        return self._pages("/v1/keys", _types.Key, {}, limit)

    def register_key(
        self,
        *,
        hash: str,
        name: str,
        role: Literal["admin", "service", "reader"],
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Key:
        """Register an API key by the hash of its secret.

        Registers the SHA-256 of a secret that you make; `fairlead keys create` makes one. The secret then works on
        every server.

        For admin keys.

        hash: lower-case hex SHA-256 of the secret
        """
        return self._invoke(
            "POST",
            "/v1/keys",
            _types.Key,
            body={"hash": hash, "name": name, "role": role},
            key=idempotency_key,
            answer=answer,
        )

    def revoke_key(
        self,
        key: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Key:
        """Revoke an API key; in force everywhere within 5 s.

        Revokes a key. The last admin key can't be revoked.

        For admin keys.
        """
        return self._invoke(
            "DELETE",
            _path("/v1/keys/{id}", {"id": key}),
            _types.Key,
            key=idempotency_key,
            answer=answer,
        )

    def locks(self, *, answer: Answer | None = None) -> _types.Locks:
        """See who holds, who waits, and for whom.

        Shows who holds what, who waits, and for whom.

        For admin and reader keys.
        """
        return self._invoke("GET", "/v1/locks", _types.Locks, answer=answer)

    def acquire_lock(
        self,
        *,
        keys: Sequence[str],
        owner: str,
        ttl: str | timedelta,
        wait: str | timedelta | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Lock:
        """Lock all of the keys or none, waiting in line if asked to.

        Locks all keys or none, each with a token that is greater than all before it. With `wait`, the request stands in
        line that long. Pass the token along with each write, and have an older one refused.

        For admin, service keys.

        keys: names of 1 to 200 characters, all to be locked or none
        owner: the line of work that asks; deadlocks are told by owners
        ttl: Go duration from 100ms to 24h: how long the lock lasts unless it is renewed
        wait: Go duration up to 10m: how long to wait in line, 0s when absent
        """
        return self._invoke(
            "POST",
            "/v1/locks",
            _types.Lock,
            body={"keys": keys, "owner": owner, "ttl": ttl, "wait": wait},
            key=idempotency_key,
            answer=answer,
        )

    def release_lock(self, lock: str, /, *, idempotency_key: str | None = None, answer: Answer | None = None) -> None:
        """Release a lock that is still held.

        Frees the keys for the next in line.

        For admin, service keys.
        """
        return self._invoke("DELETE", _path("/v1/locks/{id}", {"id": lock}), None, key=idempotency_key, answer=answer)

    def renew_lock(
        self,
        lock: str,
        /,
        *,
        ttl: str | timedelta | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Lock:
        """Renew a lock that is still held.

        Extends a lease: by `ttl`, or by what it had. A lock that was lost can't be had back.

        For admin, service keys.

        ttl: Go duration from 100ms to 24h, as before when absent
        """
        return self._invoke(
            "POST",
            _path("/v1/locks/{id}/renew", {"id": lock}),
            _types.Lock,
            body={"ttl": ttl},
            key=idempotency_key,
            answer=answer,
        )

    def multidraws(self, *, limit: int = 200) -> Iterator[_types.MultidrawSummary]:
        """List multi-draws, oldest first.

        Lists multi-draws with their progress.

        For admin, service and reader keys.
        """
        return self._pages("/v1/multidraws", _types.MultidrawSummary, {}, limit)

    def create_multidraw(
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
        """Draw many times; 202 instead of 201 while the operation is running.

        Draws up to 20,000,000 integers of a range, or prizes by weight, under a lock key. With `async` it answers 202
        and goes on in the background.

        For admin, service keys.

        count: draws to be made
        lock_key: held until the operation is completed or rolled back
        async_: true: answer at once, with an operation that is running
        prizes: prizes to draw from; instead of a range. The sum of weights is positive and fits 64 bits
        range: integers to draw from; instead of prizes
        """
        return self._invoke(
            "POST",
            "/v1/multidraws",
            _types.Multidraw,
            body={"count": count, "lock_key": lock_key, "async": async_, "prizes": prizes, "range": range},
            key=idempotency_key,
            answer=answer,
        )

    def get_multidraw(
        self,
        multidraw: str,
        /,
        *,
        prize_results: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Multidraw:
        """Read a multi-draw.

        Shows a multi-draw, with up to 1,000 results inline. `objects=true` shows prizes as objects in place of ids.

        For admin, service and reader keys.

        prize_results: ids, also when absent; or objects: drawn prizes as in the operation's list, with id, name, weight
            and value
        """
        return self._invoke(
            "GET",
            _path("/v1/multidraws/{id}", {"id": multidraw}),
            _types.Multidraw,
            query={"prize_results": prize_results},
            answer=answer,
        )

    def multidraw_log(self, multidraw: str, /, *, limit: int = 200) -> Iterator[_types.LogLeaf]:
        """List a multi-draw's leaves in the public log.

        Lists the multi-draw's leaves, each with the hashes that prove that it is in the log under the page's
        checkpoint.

        For admin, service and reader keys.
        """
        return self._pages(_path("/v1/multidraws/{id}/log", {"id": multidraw}), _types.LogLeaf, {}, limit)

    def multidraw_proof(self, multidraw: str, /, *, answer: Answer | None = None) -> bytes:
        """Read the document that fairlead verify checks.

        Returns the seed and parameters from which `fairlead verify` repeats every draw.

        For admin, service and reader keys.
        """
        return self._invoke("GET", _path("/v1/multidraws/{id}/proof", {"id": multidraw}), bytes, answer=answer)

    def multidraw_results(
        self,
        multidraw: str,
        /,
        *,
        prize_results: str | None = None,
        limit: int = 10000,
    ) -> Iterator[Any]:
        """List the draws so far, in order: integers, or prizes.

        Lists the draws that are done, also while the operation runs. A page has up to 10,000.

        For admin, service and reader keys.

        prize_results: ids, also when absent; or objects: drawn prizes as in the operation's list, with id, name, weight
            and value
        """
        return self._pages(_path("/v1/multidraws/{id}/results", {"id": multidraw}), object, {"prize_results": prize_results}, limit)

    def resume_multidraw(
        self,
        multidraw: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Multidraw:
        """Go on with an interrupted multi-draw, in the background.

        Continues an interrupted operation at its last checkpoint. Its draws are those of an unbroken one.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/multidraws/{id}/resume", {"id": multidraw}),
            _types.Multidraw,
            key=idempotency_key,
            answer=answer,
        )

    def rollback_multidraw(
        self,
        multidraw: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Multidraw:
        """End an interrupted or completed multi-draw; its draws stay readable.

        Ends an operation and frees its lock key. Its draws stay readable.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/multidraws/{id}/rollback", {"id": multidraw}),
            _types.Multidraw,
            key=idempotency_key,
            answer=answer,
        )

    def publications(self, *, status: str | None = None, limit: int = 200) -> Iterator[_types.Publication]:
        """List publications, oldest first.

        Lists publications without their payloads, by `status` if that is given.

        For admin, service and reader keys.

        status: only those of this status
        """
        return self._pages("/v1/publications", _types.Publication, {"status": status}, limit)

    def create_publication(
        self,
        *,
        payload: Any,
        target: str,
        jitter: str | timedelta | None = None,
        publish_at: datetime | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Publication:
        """Make a publication: scheduled, or a draft without a time.

        Schedules a payload for a target. It is never sent before `publish_at` by the database's clock; `jitter` adds a
        random delay. Without a time it is a draft.

        For admin, service keys.

        payload: any JSON value
        target: the target's name
        jitter: Go duration up to 5m: a random part of it is added to the time
        publish_at: RFC 3339; past: at once; absent: a draft
        """
        return self._invoke(
            "POST",
            "/v1/publications",
            _types.Publication,
            body={"payload": payload, "target": target, "jitter": jitter, "publish_at": publish_at},
            key=idempotency_key,
            answer=answer,
        )

    def get_publication(self, publication: str, /, *, answer: Answer | None = None) -> _types.Publication:
        """Read a publication with its payload.

        Shows a publication: its times, attempts and last error, and who executes it.

        For admin, service and reader keys.
        """
        return self._invoke(
            "GET",
            _path("/v1/publications/{id}", {"id": publication}),
            _types.Publication,
            answer=answer,
        )

    def attempts(self, publication: str, /, *, limit: int = 200) -> Iterator[_types.Attempt]:
        """List a publication's attempts in order.

        Lists executions. `lost`: its process died; `refused`: its result came after that, and did not count.

        For admin, service and reader keys.
        """
        return self._pages(_path("/v1/publications/{id}/attempts", {"id": publication}), _types.Attempt, {}, limit)

    def cancel_publication(
        self,
        publication: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Publication:
        """Cancel a draft or a scheduled publication.

        Once this is answered with 200, the publication is never sent.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/publications/{id}/cancel", {"id": publication}),
            _types.Publication,
            key=idempotency_key,
            answer=answer,
        )

    def publish_now(
        self,
        publication: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Publication:
        """Publish a draft or a scheduled publication now.

        Makes a draft or a scheduled publication due now.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/publications/{id}/publish", {"id": publication}),
            _types.Publication,
            key=idempotency_key,
            answer=answer,
        )

    def retry_publication(
        self,
        publication: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Publication:
        """Attempt a failed publication anew.

        Makes a failed publication due again. Its `webhook-id` stays the same, and its version grows.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/publications/{id}/retry", {"id": publication}),
            _types.Publication,
            key=idempotency_key,
            answer=answer,
        )

    def schedule(
        self,
        publication: str,
        /,
        *,
        publish_at: datetime,
        jitter: str | timedelta | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Publication:
        """Give a draft its time, or a scheduled publication another one.

        Gives a publication its time, as long as it was not claimed.

        For admin, service keys.

        publish_at: RFC 3339; past: at once
        jitter: Go duration up to 5m; absent: the one that it has
        """
        return self._invoke(
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
    ) -> Iterator[_types.Saga]:
        """List operations of several steps, oldest first.

        Lists operations of several steps, which transfers between ledgers are made of. Filter them by `status`, or by
        `stuck=true`.

        For admin, service and reader keys.

        name: only those of this definition, such as cross-transfer
        status: only those of this status: pending, completed, failed or compensated
        stuck: true: only stuck ones, which have failed ten times in a row
        """
        return self._pages("/v1/sagas", _types.Saga, {"name": name, "status": status, "stuck": stuck}, limit)

    def get_saga(self, saga: str, /, *, answer: Answer | None = None) -> _types.Saga:
        """Read an operation of several steps.

        Shows an operation with its steps, attempts, last error, and when it is tried again.

        For admin, service and reader keys.
        """
        return self._invoke("GET", _path("/v1/sagas/{id}", {"id": saga}), _types.Saga, answer=answer)

    def compensate_saga(
        self,
        saga: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Saga:
        """Give a pending operation up: steps that are not done are cancelled, those that are done are undone.

        Gives a pending operation up. The answer comes at once; the operation ends as `compensated` when everything done
        is undone.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/sagas/{id}/compensate", {"id": saga}),
            _types.Saga,
            key=idempotency_key,
            answer=answer,
        )

    def retry_saga(
        self,
        saga: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Saga:
        """Let a pending operation be tried at once.

        Tries a pending operation now instead of at its next time.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/sagas/{id}/retry", {"id": saga}),
            _types.Saga,
            key=idempotency_key,
            answer=answer,
        )

    def subscriptions(self, *, limit: int = 200) -> Iterator[_types.Subscription]:
        """List subscriptions, oldest first.

        Lists subscriptions that were not deleted.

        For admin, service and reader keys.
        """
        return self._pages("/v1/subscriptions", _types.Subscription, {}, limit)

    def create_subscription(
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
        """Subscribe a webhook to the events of topics.

        Delivers the events of topics to a webhook, in order within each topic, at least once. Repeats have the same
        `webhook-id`.

        For admin, service keys.

        target: the name of the webhook that events are delivered to
        topics: 1 to 100 of auction:ID, campaign:ID and multidraw:ID; with * for the id, all of the kind, those to come
            included
        envelope: plain, when absent: the message as the live stream has it; cloudevents: CloudEvents 1.0, structured
            JSON
        from_: now, when absent: with the events that are to come; start: with those that there are already
        types: types of events that are delivered, as the live stream names them; all when absent. countdown and
            bid.outbid are for the live stream alone
        """
        return self._invoke(
            "POST",
            "/v1/subscriptions",
            _types.Subscription,
            body={"name": name, "target": target, "topics": topics, "envelope": envelope, "from": from_, "types": types},
            key=idempotency_key,
            answer=answer,
        )

    def delete_subscription(
        self,
        subscription: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Subscription:
        """End a subscription for good.

        Ends a subscription. Its name is free then.

        For admin, service keys.
        """
        return self._invoke(
            "DELETE",
            _path("/v1/subscriptions/{id}", {"id": subscription}),
            _types.Subscription,
            key=idempotency_key,
            answer=answer,
        )

    def get_subscription(self, subscription: str, /, *, answer: Answer | None = None) -> _types.Subscription:
        """Read a subscription.

        Shows a subscription, and whether it is paused and why.

        For admin, service and reader keys.
        """
        return self._invoke(
            "GET",
            _path("/v1/subscriptions/{id}", {"id": subscription}),
            _types.Subscription,
            answer=answer,
        )

    def pause_subscription(
        self,
        subscription: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Subscription:
        """Keep a subscription's events back.

        After the answer at most one event of each topic is sent, until the subscription is resumed.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/subscriptions/{id}/pause", {"id": subscription}),
            _types.Subscription,
            key=idempotency_key,
            answer=answer,
        )

    def replay_topic(
        self,
        subscription: str,
        /,
        *,
        after: int,
        topic: str,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Subscription:
        """Deliver a topic's events after a number, again or for the first time.

        Moves the subscription's place in one topic, back or on. Events that come again have the `webhook-id` that they
        had.

        For admin, service keys.

        after: the number of the event before the first that is delivered
        topic: one of the subscription's, or of a kind that it follows
        """
        return self._invoke(
            "POST",
            _path("/v1/subscriptions/{id}/replay", {"id": subscription}),
            _types.Subscription,
            body={"after": after, "topic": topic},
            key=idempotency_key,
            answer=answer,
        )

    def resume_subscription(
        self,
        subscription: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Subscription:
        """Let a paused subscription's events go.

        Goes on where it was, at once. Refusals are counted anew.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/subscriptions/{id}/resume", {"id": subscription}),
            _types.Subscription,
            key=idempotency_key,
            answer=answer,
        )

    def subscription_topics(self, subscription: str, /, *, limit: int = 200) -> Iterator[_types.TopicProgress]:
        """List the topics that a subscription has come to, and how far.

        Lists the topics by name, each with the last event that was delivered, the last there is, and why the next one
        was not delivered.

        For admin, service and reader keys.
        """
        return self._pages(_path("/v1/subscriptions/{id}/topics", {"id": subscription}), _types.TopicProgress, {}, limit)

    def targets(self, *, limit: int = 200) -> Iterator[_types.Target]:
        """List targets, oldest first.

        Lists targets without their secrets.

        For admin, service and reader keys.
        """
        return self._pages("/v1/targets", _types.Target, {}, limit)

    def create_target(
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
        """Make a target; its signing secret is shown this once.

        Says where publications go. Keep the `secret`: webhooks are signed with it, and it is not shown again.

        For admin, service keys.

        name: what publications call it
        timeout: Go duration that a whole attempt may take, uploads included, 1s to 15m; 30s when absent
        url: http or https; where a webhook is posted to; for deviantart, where its API is, https://www.deviantart.com
            when absent
        """
        return self._invoke(
            "POST",
            "/v1/targets",
            _types.MadeTarget,
            body={"kind": kind, "name": name, "config": config, "timeout": timeout, "url": url},
            key=idempotency_key,
            answer=answer,
        )

    def get_target(self, target: str, /, *, answer: Answer | None = None) -> _types.Target:
        """Read a target, and how it is slowed down.

        Shows a target, whether it works, and how far deliveries to it are slowed down.

        For admin, service and reader keys.
        """
        return self._invoke("GET", _path("/v1/targets/{id}", {"id": target}), _types.Target, answer=answer)

    def replace_credentials(
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
        """Give a target new credentials, and resume it.

        Replaces the credentials of a target that needs some, and lets its publications go.

        For admin, service keys.

        client_id: with the client's secret, or as before when both are absent
        refresh_token: of a new authorization; as before when absent
        """
        return self._invoke(
            "POST",
            _path("/v1/targets/{id}/credentials", {"id": target}),
            _types.Target,
            body={"client_id": client_id, "client_secret": client_secret, "refresh_token": refresh_token},
            key=idempotency_key,
            answer=answer,
        )

    def pause_target(
        self,
        target: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Target:
        """Keep a target's publications back.

        Keeps every publication of a target back until it is resumed.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/targets/{id}/pause", {"id": target}),
            _types.Target,
            key=idempotency_key,
            answer=answer,
        )

    def resume_target(
        self,
        target: str,
        /,
        *,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Target:
        """Let a paused target's publications go.

        Lets a paused target's publications go. Those that are due go at once.

        For admin, service keys.
        """
        return self._invoke(
            "POST",
            _path("/v1/targets/{id}/resume", {"id": target}),
            _types.Target,
            key=idempotency_key,
            answer=answer,
        )

    def rotate_secret(
        self,
        target: str,
        /,
        *,
        overlap: str | timedelta | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.MadeTarget:
        """Replace a webhook's signing secret; the old one signs too for a while.

        Makes a new signing secret. For `overlap`, deliveries are signed with both, so that the receiver can change
        over.

        For admin, service keys.

        overlap: Go duration up to 720h for which the old secret signs too; 24h when absent
        """
        return self._invoke(
            "POST",
            _path("/v1/targets/{id}/secret", {"id": target}),
            _types.MadeTarget,
            body={"overlap": overlap},
            key=idempotency_key,
            answer=answer,
        )

    def transfers_by_reference(self, *, reference: str | None = None, limit: int = 200) -> Iterator[_types.Transfer]:
        """Find the deposit, withdrawal or transfer that has completed with a reference.

        Finds the one deposit, withdrawal or transfer that completed with a `reference`. The list has one item or none.

        For users, within what is theirs or published, and for admin, service and reader keys.

        reference: which must be given; users find what they are a party to
        """
        return self._pages("/v1/transfers", _types.Transfer, {"reference": reference}, limit)

    def transfer(
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
        """Move money between accounts.

        Moves money in one commit. With `legs` in place of `from`, `to` and `amount`, all of up to 100 legs are done or
        none; in the answer, `from`, `to`, `amount` and `currency` are then the first leg's, and `legs` has all of them.
        A transfer that is refused for lack of money is kept as `failed`.

        For users, within what is theirs or published, and for admin, service keys.

        amount: minor units
        from_: absent with legs, else required, as to and amount are
        legs: in place of from, to and amount: all of them are done in order, or none
        reference: unique for ever: the same request with it again, under any key, moves nothing
        """
        return self._invoke(
            "POST",
            "/v1/transfers",
            _types.Transfer,
            body={"amount": amount, "from": from_, "legs": legs, "memo": memo, "reference": reference, "to": to},
            key=idempotency_key,
            answer=answer,
        )

    def get_transfer(self, transfer: str, /, *, answer: Answer | None = None) -> _types.Transfer:
        """Read a transfer.

        Shows a transfer, deposit or withdrawal: whether it completed, when, and why not.

        For users, within what is theirs or published, and for admin, service and reader keys.
        """
        return self._invoke("GET", _path("/v1/transfers/{id}", {"id": transfer}), _types.Transfer, answer=answer)

    def withdraw(
        self,
        *,
        account: str,
        amount: int,
        memo: str | None = None,
        reference: str | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> _types.Movement:
        """Take money to the outside.

        Books money that leaves. It takes available money only. With a `reference`, the same withdrawal under another
        key moves nothing.

        For admin, service keys.

        amount: minor units
        reference: unique for ever: the same request with it again, under any key, moves nothing
        """
        return self._invoke(
            "POST",
            "/v1/withdrawals",
            _types.Movement,
            body={"account": account, "amount": amount, "memo": memo, "reference": reference},
            key=idempotency_key,
            answer=answer,
        )
