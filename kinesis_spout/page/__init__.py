"""One static page: `index.html`, `page.css` and `page.js`, drawn from JSON.

- `document.page(data)`: the page as one file, with its data. Without data, its server has them.
- `observation_json.observation_json`: an application as the page's JSON.
- `drill_json.drill_json`: a drill's verdict and history as the page's JSON.

Whatever the data contain, the page has no elements but its own: the JSON stands in a block that no
browser runs, without a `<`, and the script makes text of each value.
"""
