// Shows a verification: its steps as they are found, and the verdict.
import { h, fill, add } from "../dom.js";

// The one script that may be run beside the page.
const worker = "/console/assets/js/verify/worker.js";
const policy = globalThis.trustedTypes?.createPolicy("fairlead", { createScriptURL: (url) => {
  if (url !== worker) throw new TypeError("not the console's worker");
  return url;
} });

// show verifies bytes and draws into element. It resolves with the verdict.
export function show(element, bytes, { commitment, signal } = {}) {
  const steps = h("ol", { class: "steps" });
  const verdict = h("p", { class: "note", role: "status" }, "Verifying in this browser…");
  fill(element, verdict, steps);
  return new Promise((resolve) => {
    const w = new Worker(policy ? policy.createScriptURL(worker) : worker, { type: "module" });
    const end = (d) => {
      w.terminate();
      resolve(d);
    };
    signal?.addEventListener("abort", () => end({ valid: false, reason: "left" }));
    w.onerror = () => {
      fill(verdict, "The verifier can't be run here.");
      verdict.className = "note bad";
      end({ valid: false, reason: "the verifier can't be run here" });
    };
    w.onmessage = ({ data }) => {
      if (data.step) add(steps, h("li", { class: data.step.ok ? "ok" : "no" }, h("span", {}, data.step.name, h("code", {}, data.step.detail))));
      if (data.progress) fill(verdict, `Verifying in this browser… ${Math.round(100 * data.progress)} %`);
      if (!data.done) return;
      const d = data.done;
      verdict.className = `note ${d.valid ? "good" : d.unchecked ? "warn" : "bad"}`;
      verdict.dataset.verdict = d.valid ? "valid" : d.unchecked ? "unchecked" : "invalid";
      fill(verdict, d.valid ? (commitment ? "Valid. Recomputed in this browser, from the document and the published commitment." : "Valid in itself. Compare its commitment with the one that was published before the sale.") : d.unchecked ? `All else is right, but ${d.reason}.` : `Not valid: ${d.reason}.`);
      end(d);
    };
    w.postMessage({ bytes, commitment });
  });
}
