// Light or dark, before the first paint: a file of its own, since the policy allows no inline script.
(function () {
  var chosen = null;
  try {
    chosen = window.localStorage.getItem("orsay-scheme");
  } catch (problem) {
    // storage is forbidden: the system's choice holds
  }
  var dark = chosen === "dark" || (chosen !== "light" && window.matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
})();
