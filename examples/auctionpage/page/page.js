// All that the page shows is made of the auction's events, from the first one on. Each has a number; the browser comes
// back after a broken connection with the last one that it saw, and misses nothing.
"use strict";

const el = (id) => document.getElementById(id);
const money = (cents) => (cents / 100).toFixed(2);

const standing = new Map(); // account → amount
const sold = [];
let places = 0;
let seq = 0;
let phase = "Live";

// What each event changes. Only the countdown has no number, and is not kept.
const handlers = {
  "auction.started": () => {},
  "round.started": (d) => { places = d.winners; phase = `Round ${d.round}: ${d.winners} to win`; },
  "bid.placed": (d) => { standing.set(d.account, d.amount); },
  "round.extended": (d) => { phase = `Round ${d.round}, extended by a late bid`; },
  "round.completed": (d) => {
    for (const w of d.winners) {
      standing.delete(w.account);
      sold.push(`Round ${d.round}: ${w.account} pays ${money(w.amount)} EUR`);
    }
  },
  "bid.carried_over": () => {}, // It stands already.
  "countdown": (d) => { el("clock").textContent = (d.remaining_ms / 1000).toFixed(0) + " s"; },
  "auction.completed": () => { end("The auction has ended"); },
  "auction.cancelled": () => { end("The auction was cancelled"); },
};

let events;

function connect() {
  events = new EventSource(`events?since=${seq}`);
  events.onopen = draw;
  events.onerror = () => {
    el("state").textContent = "The connection is lost; trying again …";
    // The browser tries again by itself, unless what it got was an answer, and no stream.
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 1000);
  };
  for (const [type, apply] of Object.entries(handlers)) {
    events.addEventListener(type, (e) => {
      const message = JSON.parse(e.data);
      if (message.seq !== undefined) {
        if (message.seq !== seq + 1) throw new Error(`event ${message.seq} came after ${seq}`);
        seq = message.seq;
      }
      apply(message.data);
      draw();
    });
  }
}

function end(text) {
  events.close();
  standing.clear();
  phase = text;
  el("clock").textContent = "–";
}

// draw puts what is known on the page. Names are text, whatever they contain.
function draw() {
  el("state").textContent = phase;
  const ranked = [...standing].sort(([, a], [, b]) => b - a);
  el("board").replaceChildren(...ranked.map(([account, amount], i) => {
    const row = document.createElement("tr");
    row.classList.toggle("wins", i < places);
    row.classList.toggle("last", i === places - 1);
    for (const [text, kind] of [[i + 1, ""], [account, ""], [money(amount), "money"]]) {
      const cell = document.createElement("td");
      cell.textContent = text;
      cell.className = kind;
      row.append(cell);
    }
    return row;
  }));
  el("sold").replaceChildren(...sold.map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  }));
}

connect();

// One key for one press of the button: however often the request is sent, it is one bid.
el("form").addEventListener("submit", async (e) => {
  e.preventDefault();
  const fields = new FormData(e.target);
  const bid = new URLSearchParams({
    name: fields.get("name"),
    amount: Math.round(fields.get("bid") * 100),
    key: crypto.randomUUID(),
  });
  for (let attempt = 1; ; attempt++) {
    try {
      const answer = await fetch("bids", { method: "POST", body: bid });
      const text = await answer.text();
      if (answer.status >= 500) throw new Error(text.trim()); // Nobody knows yet whether the bid stands.
      el("answer").textContent = text;
      return;
    } catch (failure) {
      el("answer").textContent = `No answer (${failure.message}); asking again …`;
      if (attempt === 5) return;
      await new Promise((wake) => { setTimeout(wake, 500 * attempt); });
    }
  }
});
