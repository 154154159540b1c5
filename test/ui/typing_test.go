// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"strings"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// countStreams counts the streams that the page opens and closes from now on. Timers of the pause in typing are withheld
// while held is true.
const countStreams = `(() => {
  if (window.streams) return
  const Source = EventSource, timer = setTimeout
  window.streams = { opened: [], closed: 0, held: false }
  window.EventSource = class extends Source {
    constructor(url) { super(url); streams.opened.push(url) }
    close() { super.close(); streams.closed++ }
  }
  window.setTimeout = (f, ms, ...args) => ms === 300 && streams.held ? 0 : timer(f, ms, ...args)
})()`

// typeLetters changes a field letter by letter, each in a frame of its own. The timers of one thread run in the order of
// their times, so that a busy host makes no pause.
const typeLetters = `(async () => {
  const field = [...document.querySelectorAll("label.search")].find(l => l.textContent.startsWith(%q)).querySelector("input")
  field.focus()
  for (const letter of %q) {
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(field, field.value + letter)
    field.dispatchEvent(new Event("input", { bubbles: true }))
    await new Promise(done => setTimeout(done, 60))
  }
  return true
})()`

// typing checks that a search opens one stream when typing pauses, or by Enter, and closes the one before.
func (w *world) typing() {
	w.t.Helper()
	do(w, "count streams", chromedp.Evaluate[chromedp.Void](countStreams))
	for _, v := range []struct{ hash, text, field, word, asked string }{
		{"#/map", "1000 nodes", "Find a pod", "api-777", "view=map"},
		{"#/policies", "outside of the cluster", "Find a namespace", "team1", "view=matrix"},
		{"#/addresses", "10.0.1.0/24", "Find an address", "10.0.1.", "view=addresses"},
	} {
		w.open(v.hash, v.text)
		before := w.streams()
		do(w, "type", chromedp.Evaluate[bool](fmt.Sprintf(typeLetters, v.field, v.word), chromedp.EvalAwaitPromise))
		w.opens(before, 1)
		w.asks(v.asked, v.word)
		do(w, "hold timers", chromedp.Evaluate[chromedp.Void]("streams.held = true"))
		do(w, "type", chromedp.KeyEvent("z"))
		do(w, "enter", chromedp.KeyEvent(kb.Enter))
		w.opens(before, 2)
		w.asks(v.asked, v.word+"z")
		do(w, "release timers", chromedp.Evaluate[chromedp.Void]("streams.held = false"))
	}
	// A flow's name is complete by Enter. Until then it stays in the field while flows arrive.
	w.open("#/flows", "443/tcp")
	before := w.streams()
	do(w, "type", chromedp.Evaluate[bool](fmt.Sprintf(typeLetters, "Namespace", "team"), chromedp.EvalAwaitPromise))
	do(w, "type", chromedp.KeyEvent("1"))
	do(w, "flows so far", chromedp.Evaluate[chromedp.Void](`window.seen = document.querySelector(".head .sub").textContent`))
	do(w, "further flows", chromedp.Poll[bool](`document.querySelector(".head .sub").textContent !== window.seen`))
	w.opens(before, 0)
	do(w, "enter", chromedp.KeyEvent(kb.Enter))
	w.opens(before, 1)
	w.asks("view=flows", "namespace=team1")
}

// streams returns how many streams the page has opened, and how many it has closed.
func (w *world) streams() [2]int {
	w.t.Helper()
	n := do(w, "streams", chromedp.Evaluate[[]int]("[streams.opened.length, streams.closed]"))
	return [2]int(n)
}

// opens waits until the page has opened so many streams, and fails if it opens more, or does not close as many.
func (w *world) opens(before [2]int, want int) {
	w.t.Helper()
	do(w, "open a stream", chromedp.Poll[bool](fmt.Sprintf("streams.opened.length >= %d", before[0]+want)))
	if now := w.streams(); now[0]-before[0] != want || now[1]-before[1] != want {
		w.t.Errorf("typing opened %d streams and closed %d, want %d: %v", now[0]-before[0], now[1]-before[1], want,
			do(w, "streams", chromedp.Evaluate[[]string]("streams.opened")))
	}
}

// asks checks the newest stream.
func (w *world) asks(view, find string) {
	w.t.Helper()
	got := do(w, "streams", chromedp.Evaluate[string]("streams.opened.at(-1)"))
	if !strings.Contains(got, view) || !strings.Contains(got, find) {
		w.t.Errorf("the newest stream is %s, want %s with %s", got, view, find)
	}
}
