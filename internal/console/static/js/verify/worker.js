// Verifies beside the page, which stays responsive while a million positions are hashed.
import { verify } from "./verify.js";
import { isMultidraw, verifyMultidraw } from "./multidraw.js";

onmessage = async ({ data: { bytes, commitment } }) => {
  let last = 0;
  try {
    const { valid, unchecked, field, reason, proof, counts } = await (isMultidraw(bytes) ? verifyMultidraw : verify)(bytes, {
      commitment,
      step: (s) => postMessage({ step: s }),
      progress: (part) => {
        if (part - last > 0.05) postMessage({ progress: (last = part) });
      },
    });
    postMessage({ done: { valid, unchecked, field, reason, campaign: proof?.campaign, commitment: proof?.commitment, winners: proof?.winners.slice(0, 500), count: proof?.winners.length ?? 0, counts } });
  } catch (e) {
    postMessage({ done: { valid: false, unchecked: false, field: "", reason: `The verification itself failed: ${e.message}` } });
  }
};
