// SPDX-License-Identifier: Apache-2.0

import { signal } from "@preact/signals";

export const views = [
  { name: "health", title: "Health" },
  { name: "map", title: "Map" },
  { name: "flows", title: "Flows" },
  { name: "why", title: "Why" },
  { name: "policies", title: "Policies" },
  { name: "addresses", title: "Addresses" },
  { name: "vms", title: "VMs" },
];

// href returns the address of a view with the choices in it, so that it can be kept and sent to others who run weft ui.
export function href(name, query = {}) {
  const q = new URLSearchParams(Object.entries(query).filter(([, v]) => v !== "" && v != null)).toString();
  return "#/" + name + (q ? "?" + q : "");
}

function parse() {
  const [path, q] = location.hash.replace(/^#\/?/, "").split("?");
  const name = views.some((v) => v.name === path) ? path : "health";
  return { name, query: Object.fromEntries(new URLSearchParams(q || "")) };
}

export const route = signal(parse());
addEventListener("hashchange", () => { route.value = parse(); });

export function go(name, query) { location.hash = href(name, query); }
