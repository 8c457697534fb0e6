// Shows the contract's document, without asking anybody else to check it.
window.ui = SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  defaultModelsExpandDepth: -1,
  showCommonExtensions: true,
  showExtensions: true,
  validatorUrl: null,
});
