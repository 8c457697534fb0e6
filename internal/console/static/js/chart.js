// The small lines of the overview's tiles. Charts with axes are plot.js.
import { h } from "./dom.js";

// spark is a line of the last values; null is a moment without one.
export function spark(label) {
  const width = 180;
  const height = 30;
  const line = h("path", { class: "line", "vector-effect": "non-scaling-stroke" });
  const element = h("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, line);
  const values = [];
  return {
    element,
    push(v) {
      values.push(v);
      if (values.length > 60) values.shift();
      const top = Math.max(...values.filter((x) => x !== null), 1e-9);
      let d = "";
      let pen = "M";
      values.forEach((x, i) => {
        if (x === null) {
          pen = "M";
          return;
        }
        d += `${pen}${(((60 - values.length + i) / 59) * width).toFixed(1)} ${(height - 2 - (x / top) * (height - 4)).toFixed(1)}`;
        pen = "L";
      });
      line.setAttribute("d", d);
    },
  };
}
