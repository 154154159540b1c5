// SPDX-License-Identifier: Apache-2.0

import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";

const mark = { "X-Weft-Request": "1" };

// session is open, opening, or none with the reason.
export const session = signal({ state: "opening" });

// openSession exchanges the token of the link for a cookie, and removes it from the address.
export async function openSession() {
  const token = (location.hash.match(/^#token=([\w-]+)$/) || [])[1];
  if (token) history.replaceState(null, "", location.pathname + "#/health");
  try {
    const r = await fetch("api/session", { method: "POST", headers: { ...mark, "X-Weft-Token": token || "" } });
    session.value = r.ok ? { state: "open" } : { state: "none", why: (await r.json()).error };
  } catch {
    session.value = { state: "none", why: "weft ui does not answer: it was stopped." };
  }
}

// act runs an action. The error has a hint where there is one.
export async function act(name, form) {
  let r;
  try {
    r = await fetch("api/" + name, { method: "POST", headers: mark, body: new URLSearchParams(form) });
  } catch {
    throw { error: "weft ui does not answer", hint: "see whether it still runs in its terminal" };
  }
  const v = await r.json().catch(() => null);
  if (!v) throw { error: "weft ui's answer ends too early", hint: "ask again" };
  if (r.status === 401) session.value = { state: "none", why: v.error };
  if (!r.ok) throw v; // an answer may have an error of its own: that of a trace's connection
  return v;
}

// useView follows a view: data as of asOf, stale with the reason since a time, lost if weft ui itself does not answer.
export function useView(view, query = {}) {
  const key = new URLSearchParams({ view, ...query }).toString();
  const [state, set] = useState({ key, asOf: 0 });
  useEffect(() => {
    let source, timer, ended = false;
    const open = () => {
      source = new EventSource("api/events?" + key);
      source.onmessage = (e) => {
        const next = JSON.parse(e.data);
        set((old) => ({ ...next, key, view, data: next.data ?? (old.key === key ? old.data : undefined), lost: 0 }));
      };
      source.onerror = () => {
        if (ended) return;
        set((old) => ({ ...old, lost: old.lost || Date.now() }));
        if (source.readyState === EventSource.CLOSED) {
          timer = setTimeout(async () => {
            await openSession(); // says why if the session is void
            if (!ended && session.value.state === "open") open();
          }, 2000);
        }
      };
    };
    open();
    return () => { ended = true; clearTimeout(timer); source.close(); };
  }, [key]);
  return state.view === view || state.asOf === 0 ? state : { asOf: 0 };
}
