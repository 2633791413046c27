// The reference of the API: Swagger UI over the site's own description of it, in the theme of the page.

const root = document.documentElement;
const place = document.getElementById("swagger-ui");

function followTheme() {
  root.classList.toggle("dark-mode", root.dataset.bsTheme === "dark");
}

//: The page has a title of its own, and requests go out as the person who is logged in: nothing to authorize.
function withoutFrame() {
  const none = () => () => null;
  return { wrapComponents: { InfoContainer: none, SchemesContainer: none, authorizeBtn: none, authorizeOperationBtn: none } };
}

followTheme();
new MutationObserver(followTheme).observe(root, { attributeFilter: ["data-bs-theme"] });
window.SwaggerUIBundle({
  url: place.dataset.schema,
  domNode: place,
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: -1,
  filter: true,
  //: Requests that change something take a token: the session's would need its form.
  supportedSubmitMethods: ["get"],
  validatorUrl: null,
  plugins: [withoutFrame],
  onComplete: () => {
    // Swagger UI draws a <main> inside the page's: one page has one.
    Object.assign(place.querySelector("main"), { role: "group", ariaLabel: "Addresses" });
    root.dataset.ready = "yes";
  },
});
