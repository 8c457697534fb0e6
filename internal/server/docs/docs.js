// Shows the contract's document, without asking anybody else to check it.

// Problems of earlier versions link to /docs#code.
if (/^#[a-z_]+$/.test(location.hash)) {
  location.replace("/docs/problems" + location.hash);
}

// Swagger UI's own filter compares tags alone. This one finds words in an operation's method, path, summary and description.
const search = () => ({
  fn: {
    opsFilter: (tagged, phrase) => {
      const words = phrase.toLowerCase().split(/\s+/).filter(Boolean);
      const found = (tag, op) => {
        const o = op.get("operation");
        const text = [tag, op.get("method"), op.get("path"), o?.get("summary"), o?.get("description")].join(" ").toLowerCase();
        return words.every((word) => text.includes(word));
      };
      return tagged
        .map((of, tag) => of.update("operations", (all) => all.filter((op) => found(tag, op))))
        .filter((of) => of.get("operations").size > 0);
    },
  },
});

// An operation's row is a button, so its path can't be a link, too. Links to an operation, as #/lottery/getCampaign, still open it.
const plainPaths = () => ({
  wrapComponents: { DeepLink: (_, system) => ({ text }) => system.React.createElement("span", null, text) },
});

window.ui = SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  filter: true,
  plugins: [search, plainPaths],
  defaultModelsExpandDepth: -1,
  showCommonExtensions: true,
  showExtensions: true,
  validatorUrl: null,
  onComplete: () => {
    const input = document.querySelector(".operation-filter-input");
    input?.setAttribute("placeholder", "Search operations");
    input?.setAttribute("aria-label", "Search operations");
  },
});

// Swagger UI gives its choices no name, and its code can't be scrolled by keyboard.
new MutationObserver(() => {
  for (const select of document.querySelectorAll("#swagger-ui select:not([aria-label])")) {
    select.setAttribute("aria-label", select.closest(".examples-select, .examples-select-element") ? "Example" : "Media type");
  }
  for (const code of document.querySelectorAll("#swagger-ui pre:not([tabindex])")) {
    code.tabIndex = 0;
  }
}).observe(document.getElementById("swagger-ui"), { childList: true, subtree: true });
