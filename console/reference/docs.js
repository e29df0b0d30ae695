// Starts Swagger UI on the document that the page names.
const page = document.getElementById("page");
SwaggerUIBundle({
  url: page.dataset.document,
  domNode: page,
  deepLinking: true,
  layout: "BaseLayout",
  presets: [SwaggerUIBundle.presets.apis],
  showExtensions: true,
  showCommonExtensions: true,
  validatorUrl: null, // it would send the document to a server elsewhere
});
