// SPDX-License-Identifier: Apache-2.0

import { useEffect, useRef, useState } from "preact/hooks";

const paths = {
  health: "M3 12h4l2.5-7 5 14 2.5-7h4",
  map: "M12 5v5M12 10H6v4M12 10h6v4M9.5 2.5h5v4h-5zM3.5 14h5v5h-5zM15.5 14h5v5h-5z",
  flows: "M3 8h15M14 4l4 4-4 4M21 16H6M10 12l-4 4 4 4",
  why: "M9 9a3 3 0 1 1 4.2 2.8c-.8.4-1.2 1-1.2 2.2M12 17.6v.4M12 2.8a9.2 9.2 0 1 0 0 18.4 9.2 9.2 0 0 0 0-18.4z",
  policies: "M12 2.8l8 3v6c0 4.6-3.3 8-8 9.4-4.7-1.4-8-4.8-8-9.400v-6zM8.5 12l2.5 2.5 4.5-5",
  addresses: "M4 5h16M4 12h16M4 19h10M4 5v14",
  vms: "M3.5 4.500h17v11h-17zM9 19.500h6M12 15.500v4",
  ok: "M5 12.500l4.5 4.500L19 7.5",
  warn: "M12 5v9M12 18.500v.5",
  bad: "M6 6l12 12M18 6L6 18",
  unknown: "M9 9a3 3 0 1 1 4.2 2.8c-.8.4-1.2 1-1.2 2.700M12 18.500v.3",
  skip: "M6 12h12",
  wait: "M12 6v6l4 2",
};

export function Icon({ name }) {
  return <svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d={paths[name]} /></svg>;
}

// tones are the looks of all states. Each has a sign and a word, so that no meaning is in the color alone.
const tones = {
  ok: "ok", allowed: "ok", denied: "bad", dropped: "bad", here: "ok", arrived: "ok", warn: "warn", suspect: "warn", pending: "wait", releasing: "wait", awaited: "wait", left: "skip",
  bad: "bad", blocked: "bad", lost: "bad", "not sent": "bad", unanswered: "bad", refused: "bad", silent: "unknown", unknown: "unknown", skip: "skip",
};
export function tone(state) { return tones[state] || "unknown"; }

export function Badge({ state, text }) {
  const t = tone(state);
  return <span class={"badge " + t}><Icon name={t} />{text || state}</span>;
}

function time(ms) { return new Date(ms).toLocaleTimeString(); }

// Head is the heading of a view, with how new it is.
export function Head({ title, of, children }) {
  let fresh = <span class="fresh"><Icon name="wait" />waiting for the first answer</span>;
  if (of && of.lost) fresh = <span class="fresh bad"><Icon name="bad" />no connection</span>;
  else if (of && of.stale) fresh = <span class="fresh warn"><Icon name="warn" />{of.asOf ? "as of " + time(of.asOf) : "no data"}</span>;
  else if (of && of.asOf) fresh = <span class="fresh ok"><span class="dot" />live, {time(of.asOf)}</span>;
  return (
    <header class="head">
      <h1 tabIndex={-1}>{title}</h1>
      {children}
      {of && fresh}
      {of && of.lost ? <Problem error={"weft ui does not answer since " + time(of.lost) + ": it was stopped, or this host sleeps."}
        hint={of.asOf ? "What is below is as of " + time(of.asOf) + "." : "Start it again in its terminal."} /> : null}
      {of && of.stale && !of.lost ? <Problem error={"Not read since " + time(of.since) + ": " + of.stale.error} hint={of.stale.hint}
        more={of.asOf ? "What is below is as of " + time(of.asOf) + "." : null} /> : null}
    </header>
  );
}

export function Problem({ error, hint, more }) {
  return (
    <div class="problem" role="alert">
      <Icon name="bad" />
      <div><p>{error}</p>{hint && <p class="hint">{hint}</p>}{more && <p>{more}</p>}</div>
    </div>
  );
}

export function Empty({ children }) { return <p class="empty">{children}</p>; }

// useFirst returns the first rows, and a button that shows more: a browser is slow with thousands of elements.
export function useFirst(rows, page = 15) {
  const [most, set] = useState(page);
  const more = rows.length - most;
  const button = more > 0
    ? <p class="more"><button type="button" onClick={() => set(most + page)}>Show {Math.min(page, more)} more</button> <span class="quiet">{most} of {rows.length} shown</span></p>
    : null;
  return [rows.slice(0, most), button];
}

// Table scrolls in itself on narrow screens, and shows the first rows. columns are [title, render, class].
export function Table({ label, columns, rows, id }) {
  const [first, more] = useFirst(rows);
  return (
    <>
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead><tr>{columns.map(([t, , c]) => <th scope="col" class={c} key={t}>{t}</th>)}</tr></thead>
        <tbody>
          {first.map((r, i) => (
            <tr key={id ? id(r) : i}>
              {columns.map(([t, show, c], j) => j === 0 ? <th scope="row" class={c} key={t}>{show(r)}</th> : <td class={c} key={t}>{show(r)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
    {more}
    </>
  );
}

// Findings lists what is wrong, the worst first. f is level, where, what and hint.
export function Findings({ of, more: others }) {
  const [first, more] = useFirst(of);
  return (
    <>
      <ul class="findings">
        {first.map((f) => (
          <li key={f.where + f.what} class={f.level}>
            <Badge state={f.level} text={f.level === "skip" ? "not checked" : f.level} />
            <div><p><b>{f.where}</b> {f.what}</p>{f.hint && <p class="hint">{f.hint}</p>}</div>
          </li>
        ))}
      </ul>
      {more}
      {others ? <p class="note">{others} more are not listed here: the command in their hint lists all.</p> : null}
    </>
  );
}

export function Lines({ of }) { return <>{of.map((l, i) => <div key={i}>{l}</div>)}</>; }

export function Command({ text }) {
  return <p class="command"><code>{text}</code><button type="button" onClick={() => navigator.clipboard && navigator.clipboard.writeText(text)}>Copy</button></p>;
}

// typingPause is the time in milliseconds after the last letter until what is typed counts.
export const typingPause = 300;

// useTyped returns what is in a field, and its handlers. settle is called with the whole text when typing pauses, or at
// once by Enter and when the field is left: each text may open another stream. Without pause, only the latter count.
export function useTyped(value, settle, pause = true) {
  const [text, set] = useState(value);
  const timer = useRef(0), told = useRef(value);
  const tell = (typed) => { clearTimeout(timer.current); told.current = typed; settle(typed); };
  useEffect(() => {
    if (value === told.current) return; // what was typed
    clearTimeout(timer.current);
    told.current = value;
    set(value);
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return {
    value: text,
    onInput: (e) => {
      const typed = e.currentTarget.value;
      set(typed);
      clearTimeout(timer.current);
      if (pause) timer.current = setTimeout(tell, typingPause, typed);
    },
    onChange: (e) => tell(e.currentTarget.value),
  };
}

// Search calls onInput with what is searched for.
export function Search({ value, onInput, label, pause, ...more }) {
  return <label class="search"><span>{label}</span><input type="search" {...useTyped(value, onInput, pause)} {...more} /></label>;
}
