// Starts Redoc on the document that the page names.
const page = document.getElementById("page");
Redoc.init(page.dataset.document, {}, page);
