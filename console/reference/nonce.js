// Styles that scripts after this one make get its nonce, which the page's policy asks for.
{
  const { nonce } = document.currentScript;
  const make = document.createElement.bind(document);
  document.createElement = (name, options) => {
    const made = make(name, options);
    if (String(name).toLowerCase() === "style") made.nonce = nonce;
    return made;
  };
}
