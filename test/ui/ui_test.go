// SPDX-License-Identifier: Apache-2.0

// Package ui drives weft's page in a browser against a live lab.
package ui

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// patience is the timeout of one step; a busy host takes 20 seconds to read a cluster of 1,000 nodes.
const patience = 2 * time.Minute

// world is a lab with a page that a browser shows.
type world struct {
	t        *testing.T
	weft     string // the program
	lab      string // the directory of the lab
	shots    string
	url      string
	browser  context.Context
	chromium string      // the browser's program
	server   *os.Process // weft ui
}

// program returns a program that the test needs, or skips it.
func program(t *testing.T, names ...string) string {
	t.Helper()
	for _, n := range names {
		if path, err := exec.LookPath(n); err == nil {
			return path
		}
	}
	t.Skipf("SKIPPED: %s is not installed", strings.Join(names, " or "))
	return ""
}

// newWorld returns a world with a lab.
func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: a lab needs root")
	}
	w := prepare(t)
	w.labUp()
	w.start("lab", "ui")
	return w
}

// prepare returns a world without a cluster, page and browser.
func prepare(t *testing.T) *world {
	t.Helper()
	bin := os.Getenv("WEFT_PROGRAMS")
	if bin == "" {
		t.Skip("SKIPPED: WEFT_PROGRAMS is not set: run make test-ui")
	}
	w := &world{t: t, chromium: program(t, "chromium-headless-shell", "headless-shell", "chromium", "google-chrome"),
		weft: filepath.Join(bin, "weft"), lab: filepath.Join(t.TempDir(), "lab"), shots: filepath.Join(bin, "ui")}
	if err := os.MkdirAll(w.shots, 0o755); err != nil {
		t.Fatal(err)
	}
	return w
}

// start starts the page with a command of weft, and the browser.
func (w *world) start(command ...string) {
	w.t.Helper()
	w.serve(append(command, "--dir", w.lab)...)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(w.chromium), chromedp.NoSandbox)
	alloc, stop := chromedp.NewExecAllocator(w.t.Context(), options...)
	w.t.Cleanup(stop)
	ctx, stop := chromedp.NewContext(alloc)
	w.t.Cleanup(stop)
	w.browser = ctx
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil { // starts the browser, which ends with ctx
		w.t.Fatal(err)
	}
}

// labUp brings a lab with pods up that is gone after the test.
func (w *world) labUp() { w.labFrom("../../examples,../../examples/multi-network") }

// labFrom brings a lab up with the objects in directories.
func (w *world) labFrom(dirs string) {
	w.t.Helper()
	w.t.Cleanup(func() {
		if out, err := exec.Command(w.weft, "lab", "down", "--dir", w.lab).CombinedOutput(); err != nil {
			w.t.Errorf("lab down: %v: %s", err, out)
		}
	})
	w.command("lab", "up", "--nodes", "2", "--addresses", "pools", "--encapsulation", "vxlan", "--from", dirs, "--dir", w.lab)
}

// command runs weft and returns its output.
func (w *world) command(args ...string) string {
	w.t.Helper()
	out, err := exec.CommandContext(w.t.Context(), w.weft, args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("weft %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// serve starts the page with a command of weft.
func (w *world) serve(command ...string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), w.weft, command...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		_, err = cmd.StdinPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.server = cmd.Process
	w.t.Cleanup(func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		w.t.Fatalf("weft %s printed no link", strings.Join(command, " "))
	}
	w.url = lines.Text()
}

// do runs an action in the browser, within a time, and returns its value.
func do[T any](w *world, what string, action chromedp.Action[T]) T {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.browser, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		shown, _ := chromedp.Run(w.browser, chromedp.Evaluate[string]("document.body.innerText"))
		w.shot("failed")
		w.t.Fatalf("%s: %v\nthe page shows:\n%s", what, err, shown)
	}
	return v
}

// sees waits until the content of the page has a text.
func (w *world) sees(text string) {
	w.t.Helper()
	do(w, fmt.Sprintf("page does not show %q", text), chromedp.Poll[bool](
		fmt.Sprintf("document.body.textContent.includes(%q)", text), chromedp.WithPollingInterval(100*time.Millisecond)))
}

// open opens a view.
func (w *world) open(hash, text string) {
	w.t.Helper()
	do(w, "open "+hash, chromedp.Evaluate[string](fmt.Sprintf("location.hash = %q", hash)))
	w.sees(text)
}

// click clicks the first element of a kind with a text, as the keyboard does.
func (w *world) click(element, text string) {
	w.t.Helper()
	do(w, "click "+text, chromedp.Poll[bool](fmt.Sprintf(
		`(() => { const e = [...document.querySelectorAll(%q)].find(e => e.textContent === %q && !e.disabled); if (e) e.click(); return !!e })()`,
		element, text), chromedp.WithPollingInterval(100*time.Millisecond)))
}

// clickLabel clicks the first link whose label begins with a text.
func (w *world) clickLabel(label string) {
	w.t.Helper()
	do(w, "click "+label, chromedp.Poll[bool](fmt.Sprintf(
		`(() => { const e = [...document.querySelectorAll("a")].find(e => (e.ariaLabel || "").startsWith(%q)); if (e) e.click(); return !!e })()`,
		label), chromedp.WithPollingInterval(100*time.Millisecond)))
}

// shot keeps a picture.
func (w *world) shot(name string) {
	w.t.Helper()
	png, err := chromedp.Run(w.browser, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(w.shots, name+".png"), png, 0o644)
	}
	if err != nil {
		w.t.Errorf("picture %s: %v", name, err)
	}
}

// emulate shows the page in a scheme and a size.
func (w *world) emulate(scheme string, width, height int64) {
	w.t.Helper()
	do(w, "size", chromedp.EmulateViewport(width, height))
	do(w, "scheme", chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	}))
}

// accessible checks the page with axe-core.
func (w *world) accessible(at string) {
	w.t.Helper()
	source, err := os.ReadFile(filepath.Join(filepath.Dir(w.weft), "web/node_modules/axe-core/axe.min.js"))
	if err != nil {
		w.t.Logf("SKIPPED: accessibility of %s: run make bin/web/node_modules", at)
		return
	}
	do(w, "axe-core", chromedp.Evaluate[chromedp.Void]("if (!window.axe) {"+string(source)+"}"))
	found := do(w, "axe-core", chromedp.Evaluate[[]string](
		`axe.run(document).then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.target.join(" ") + ": " + n.failureSummary)))`,
		chromedp.EvalAwaitPromise))
	for _, f := range found {
		w.t.Errorf("%s: %s", at, f)
	}
}
