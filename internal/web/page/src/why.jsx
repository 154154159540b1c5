// SPDX-License-Identifier: Apache-2.0

import { useEffect, useRef, useState } from "preact/hooks";
import { act, useView } from "./server.js";
import { go, href } from "./route.js";
import { Badge, Command, Empty, Head, Icon, Problem, Table, tone, typingPause } from "./parts.jsx";

const steps = {
  source: "Source", guard: "Source guard", egress: "Policy, egress", ingress: "Policy, ingress", service: "Service", route: "Route", filter: "Packet filters",
  tunnel: "Tunnel", wire: "Between the nodes", neighbor: "Neighbor", target: "Target", "tunnel filter": "Packet filters, tunnel", listener: "Listener", limits: "Tables of the kernel", port: "Port of the node",
};

const verdicts = {
  ok: "Nothing is in the way", unknown: "Nothing is in the way, as far as is known", suspect: "It may fail", blocked: "Blocked",
};

function Hop({ h }) {
  const t = tone(h.state);
  const facts = (h.evidence || []).length > 0;
  return (
    <li class={"hop " + t}>
      <span class="dot"><Icon name={t} /></span>
      <div>
        <p class="where"><b>{steps[h.id] || h.id}</b> <span>{h.where}</span>{h.state !== "ok" && <Badge state={h.state} />}</p>
        {h.cause && <p>{h.cause}</p>}
        {h.state === "unknown" && h.object && <p class="object">{h.object}</p>}
        {h.state === "unknown" && h.hint && <p class="hint">{h.hint}</p>}
        {facts && <details><summary>{h.evidence.length === 1 ? "1 fact" : h.evidence.length + " facts"}<span class="hidden"> about {steps[h.id] || h.id}, {h.where}</span></summary><ul>{h.evidence.map((e, i) => <li key={i}>{e}</li>)}</ul></details>}
      </div>
    </li>
  );
}

// runs divides hops into those that need attention, and lists of others in a row.
function runs(hops) {
  const out = [];
  for (const h of hops) {
    const last = out[out.length - 1];
    if (h.state === "ok" && Array.isArray(last)) last.push(h);
    else out.push(h.state === "ok" ? [h] : h);
  }
  return out;
}

function Way({ title, hops }) {
  if (hops.length === 0) return null;
  return (
    <section class="waylist"><h2 class="small">{title}</h2>
      <ol class="hops">{runs(hops).map((h, i) => !Array.isArray(h) ? <Hop key={i} h={h} /> : h.length < 3 ? h.map((one, j) => <Hop key={i + "." + j} h={one} />) : (
        <li class="hop ok" key={i}>
          <span class="dot"><Icon name="ok" /></span>
          <details class="folded"><summary><b>{h.length} hops are ok</b><span class="hidden"> {title}</span>, {h[0].where === h[h.length - 1].where ? "at " + h[0].where : "from " + h[0].where + " to " + h[h.length - 1].where}</summary>
            <ol class="hops">{h.map((one, j) => <Hop key={j} h={one} />)}</ol></details>
        </li>
      ))}</ol>
    </section>
  );
}

function Report({ r, query }) {
  const t = tone(r.state);
  const faults = [...r.forward, ...r.back].filter((h) => h.state === "blocked" || h.state === "suspect");
  return (
    <article class="report">
      <p class={"verdict " + t}><Badge state={r.state} text={verdicts[r.state]} /><span>{r.from} to {r.to}{r.port && " port " + r.port}</span>
        <a href={href("map", { from: query.from, to: query.to, port: query.port, protocol: query.protocol, state: r.state })}>Show on the map</a></p>
      {faults.length > 0 && <ul class="findings">{faults.map((h, i) => (
        <li key={i} class={tone(h.state)}><Badge state={h.state} /><div><p><b>{h.where}</b> {h.cause}</p>{h.object && <p class="object">{h.object}</p>}{h.hint && <p class="hint">{h.hint}</p>}</div></li>
      ))}</ul>}
      <div class="ways"><Way title="Forward path" hops={r.forward} /><Way title="Return path" hops={r.back} /></div>
      <Command text={r.command} />
    </article>
  );
}

// onMap returns the address of the map with the places at which a traced packet was seen.
function onMap(t) {
  const q = t.query;
  return href("map", { from: q.from, to: q.to, port: q.port, protocol: q.protocol, state: t.state, there: t.there.join(","), back: t.back.join(",") });
}

function TraceReport({ t }) {
  return (
    <article class="report">
      <h2>Trace</h2>
      <p class={"verdict " + tone(t.state)}><Badge state={t.state} /><span>{t.from} to {t.to}</span>{t.there.length > 0 && <a href={onMap(t)}>Show the hops on the map</a>}</p>
      {t.cause && <p><b>{t.where}</b> {t.cause}</p>}
      {t.object && <p class="object">{t.object}</p>}
      {t.notes.map((n, i) => <p class="hint" key={i}>{n}</p>)}
      {t.faults.length > 0 && <Way title="What explains it" hops={t.faults} />}
      {t.steps.length > 0 ? <Table label="Where the packet and its answer were seen" rows={t.steps} columns={[
        ["Seen at", (s) => s.where], ["Packet", (s) => s.packet], ["Table", (s) => s.table || "–", "mono"], ["Chain", (s) => s.chain, "mono"],
        ["Verdict", (s) => s.verdict === "drop" ? <Badge state="bad" text="drop" /> : s.verdict],
        ["From", (s) => s.from || "–", "mono"], ["To", (s) => s.to || "–", "mono"], ["Rule", (s) => s.rule || "", "mono"],
      ]} /> : <Empty>The packet was not seen anywhere.</Empty>}
      <Command text={t.command} />
    </article>
  );
}

export function Why({ query }) {
  const [typed, setTyped] = useState("");
  const [find, setFind] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setFind(typed), typingPause); // not with each letter
    return () => clearTimeout(timer);
  }, [typed]);
  const ends = useView("ends", { find });
  const [form, setForm] = useState({ from: "", to: "", port: "", protocol: "tcp", network: "", ...query });
  const [busy, setBusy] = useState("");
  const [why, setWhy] = useState(null);
  const [trace, setTrace] = useState(null);
  const [failed, setFailed] = useState(null);
  const turn = useRef(0); // an answer that comes after a later question is not shown
  const run = async (what, f) => {
    const mine = ++turn.current;
    setBusy(what); setFailed(null);
    if (what === "why") { setWhy(null); setTrace(null); }
    let show;
    try {
      const answer = { ...(await act(what, f)), query: f };
      show = () => (what === "why" ? setWhy : setTrace)(answer);
    } catch (e) {
      show = () => setFailed(e);
    }
    if (mine !== turn.current) return;
    show();
    setBusy("");
  };
  const asked = JSON.stringify(query);
  useEffect(() => {
    const f = { from: "", to: "", port: "", protocol: "tcp", network: "", ...query };
    setForm(f);
    if (f.from && f.to) run("why", f); else { turn.current++; setBusy(""); setFailed(null); setWhy(null); setTrace(null); }
  }, [asked]);
  const submit = (e) => {
    e.preventDefault();
    const q = Object.fromEntries(Object.entries(form).filter(([k, v]) => v && !(k === "protocol" && !form.port)));
    if (JSON.stringify(q) === asked) run("why", form); else go("why", q);
  };
  const field = (name, label, more = {}) => (
    <label class={"field " + name}><span>{label}</span><input name={name} value={form[name]} autocomplete="off" spellcheck={false}
      onInput={(e) => { setForm({ ...form, [name]: e.currentTarget.value }); if (more.list) setTyped(e.currentTarget.value); }} {...more} /></label>
  );
  return (
    <>
      <Head title="Why"><span class="sub">why a connection works or fails, hop by hop</span></Head>
      <form class="ask" onSubmit={submit}>
        {field("from", "From", { list: "ends", required: true, placeholder: "shop/web" })}
        {field("to", "To", { list: "ends", required: true, placeholder: "shop/db" })}
        {field("port", "Port", { placeholder: "none: ping", size: 8 })}
        <label class="field protocol"><span>Protocol</span>
          <select value={form.protocol} onChange={(e) => setForm({ ...form, protocol: e.currentTarget.value })}>
            <option value="tcp">TCP</option><option value="udp">UDP</option><option value="sctp">SCTP</option>
          </select>
        </label>
        {field("network", "Network", { placeholder: "the cluster's" })}
        <datalist id="ends">{(ends.data || []).map((n) => <option key={n} value={n} />)}</datalist>
        <div class="buttons">
          <button type="submit" class="main" disabled={busy !== ""}>Explain</button>
          <button type="button" disabled={busy !== "" || !form.from || !form.to} onClick={() => run("trace", form)}>Run a trace</button>
        </div>
      </form>
      <p class="legend">Explain asks the kernels of both nodes and sends nothing. A trace sends one packet, and shows the rules that it meets.</p>
      <div aria-live="polite">
        {busy && <p class="note"><Icon name="wait" /> {busy === "why" ? "The agents ask their kernels…" : "The packet is on its way…"}</p>}
        {failed && <Problem {...failed} />}
      </div>
      {trace && <TraceReport t={trace} />}
      {why && why.silent.map((s) => <Problem key={s} error={s} hint="A part of the answer is missing." />)}
      {why && why.reports.map((r) => <Report key={r.ipv6} r={r} query={why.query} />)}
      {!why && !trace && !busy && !failed && <Empty>Nothing is asked yet. Choose two ends here, or on the <a href={href("map")}>map</a>.</Empty>}
    </>
  );
}
