// SPDX-License-Identifier: Apache-2.0

import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { session, openSession } from "./server.js";
import { route, views, href } from "./route.js";
import { Icon } from "./parts.jsx";
import { Health } from "./health.jsx";
import { Map } from "./map.jsx";
import { Flows } from "./flows.jsx";
import { Why } from "./why.jsx";
import { Policies } from "./policies.jsx";
import { Addresses } from "./addresses.jsx";
import { VMs } from "./vms.jsx";

const pages = { health: Health, map: Map, flows: Flows, why: Why, policies: Policies, addresses: Addresses, vms: VMs };

function Nav({ at }) {
  return (
    <nav aria-label="Views">
      <a class="brand" href={href("health")} aria-label="weft, to the first view"><img src="icon.svg" alt="" width="24" height="24" />weft</a>
      <ul>
        {views.map((v) => (
          <li key={v.name}>
            <a href={href(v.name)} aria-current={at === v.name ? "page" : null}><Icon name={v.name} />{v.title}</a>
          </li>
        ))}
      </ul>
    </nav>
  );
}

function NoSession({ why }) {
  return (
    <main class="alone">
      <h1>This browser has no session</h1>
      <p>{why}</p>
      <p>The link that <code>weft ui</code> prints opens the page in one browser, once. Press Enter in the terminal where it runs for another link.</p>
    </main>
  );
}

function App() {
  const { name, query } = route.value;
  const heading = useRef(null);
  useEffect(() => {
    document.title = views.find((v) => v.name === name).title + " · weft";
    const h1 = document.querySelector("main h1");
    if (h1 && heading.current !== null && heading.current !== name) h1.focus();
    heading.current = name;
  }, [name]);
  if (session.value.state === "opening") return <p class="alone">Opening…</p>;
  if (session.value.state === "none") return <NoSession why={session.value.why} />;
  const Page = pages[name];
  return (
    <>
      <a class="skip-link" href="#main" onClick={(e) => { e.preventDefault(); document.querySelector("main h1").focus(); }}>Skip to the content</a>
      <Nav at={name} />
      <main id="main"><Page query={query} /></main>
    </>
  );
}

openSession();
render(<App />, document.getElementById("app"));
