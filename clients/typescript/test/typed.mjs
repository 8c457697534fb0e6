// What the compiler must refuse, and what it must not. Nothing runs this.
import { Fairlead } from "@fairlead-dev/client";

/** @param {Fairlead} fairlead */
export async function typed(fairlead) {
  const { available } = await fairlead.get("/v1/accounts/{id}", { path: { id: "ann" } });
  /** @type {number} */
  const n = available;
  await fairlead.get("/readyz");
  await fairlead.post("/v1/campaigns/{id}/publish", { path: { id: "c" }, idempotencyKey: undefined, signal: undefined });
  /** @type {undefined} */
  const nothing = await fairlead.delete("/v1/locks/{id}", { path: { id: "l" } });
  for await (const { reason } of fairlead.list("/v1/admin/transfers", { query: { status: "failed" } })) reason.trim();
  // @ts-expect-error An id is missing.
  await fairlead.get("/v1/accounts/{id}");
  // @ts-expect-error There is no such route.
  await fairlead.get("/v1/accounts/ann");
  // @ts-expect-error The body is missing.
  await fairlead.post("/v1/deposits");
  // @ts-expect-error A member has another type.
  await fairlead.post("/v1/deposits", { body: { account: "ann", amount: "5" } });
  // @ts-expect-error There is no such member.
  await fairlead.post("/v1/deposits", { body: { account: "ann", amount: 5, currency: "EUR" } });
  // @ts-expect-error This is no list.
  fairlead.list("/v1/integrity");
  return [n, nothing];
}
