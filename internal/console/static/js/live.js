// The live stream: events of a topic in order, each once. A gap, a drop or a lost connection is made good by asking again from the
// last number seen.
import { suspect } from "./server.js";

// follow calls on(event) for every event behind since, or from now on without it, and state(text) when the connection changes; countdowns have no number and
// come as they are. It ends with the signal.
export function follow(topic, { since, on, state, signal }) {
  let last = since;
  let socket = null;
  let pause = 500;
  let timer = 0;

  function connect() {
    if (signal.aborted) return;
    socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/live`);
    socket.onopen = () => {
      socket.send(JSON.stringify({ op: "subscribe", topic, since: last }));
    };
    socket.onmessage = (m) => {
      const e = JSON.parse(m.data);
      if (e.op === "subscribed") {
        pause = 500;
        last ??= e.seq;
        state?.("live");
      } else if (e.op === "error") {
        if (e.problem?.code === "events_expired") last = (e.first_seq ?? 1) - 1;
        if (e.problem?.code === "unknown_seq") last = e.last_seq; // An older state was restored.
        socket.close();
      } else if (e.op === "dropped") {
        socket.close();
      } else if (e.topic === topic) {
        if (e.seq === undefined) {
          on(e);
        } else if (e.seq === last + 1) {
          last = e.seq;
          on(e);
        } else if (e.seq > last) {
          socket.close(); // Something is missing: ask for it.
        }
      }
    };
    socket.onclose = () => {
      if (signal.aborted) return;
      state?.("reconnecting");
      suspect();
      timer = setTimeout(connect, pause);
      pause = Math.min(pause * 2, 10_000);
    };
  }
  signal.addEventListener("abort", () => {
    clearTimeout(timer);
    if (socket?.readyState === WebSocket.CONNECTING) {
      socket.onopen = () => socket.close(); // Browsers complain of one that is closed before it was open.
    } else {
      socket?.close();
    }
  });
  connect();
}
