// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// A VM migrates to the other node: the page shows that it will, and then where it runs, without a reload.
func TestMigration(t *testing.T) {
	w := prepare(t)
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: a lab needs root")
	}
	if out, err := exec.CommandContext(t.Context(), w.weft, "vm", "image").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no guest can run here: %s", out)
	}
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("SKIPPED: no guest can run here: %v", err)
	}
	_ = f.Close()
	from := t.TempDir()
	for _, name := range []string{"machines/direct.yaml", "web.yaml"} {
		b, err := os.ReadFile(filepath.Join("../../examples", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(from, filepath.Base(name)), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.labFrom(from)
	w.start("lab", "ui")
	w.emulate("light", 1440, 900)
	do(w, "open the link", chromedp.Navigate(w.url))
	w.sees("2 of 2 agents answer")
	w.open("#/vms", "runs here")
	w.sees("No VM migrates now")
	source, target := "node1", "node2"
	if _, err := os.Stat(filepath.Join(w.lab, "nodes/node2/machines/default,direct")); err == nil {
		source, target = target, source
	}
	migrate := exec.CommandContext(t.Context(), w.weft, "lab", "migrate", "--dir", w.lab, "direct", target)
	out := filepath.Join(t.TempDir(), "out")
	if migrate.Stdout, err = os.Create(out); err != nil {
		t.Fatal(err)
	}
	migrate.Stderr = migrate.Stdout
	if err := migrate.Start(); err != nil {
		t.Fatal(err)
	}
	// The migration is stopped for a moment, so that it cannot be over before the page has shown it.
	deadline := time.Now().Add(patience)
	for moves := []string(nil); len(moves) == 0; {
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(out)
			t.Fatalf("the migration does not begin: %s", text)
		}
		time.Sleep(10 * time.Millisecond)
		moves, _ = filepath.Glob(filepath.Join(w.lab, "store/addressmove-*"))
	}
	if err := migrate.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	w.sees("it runs on its source")
	w.accessible("migration")
	w.shot("migration")
	if err := migrate.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := migrate.Wait(); err != nil {
		text, _ := os.ReadFile(out)
		t.Fatalf("%v: %s", err, text)
	}
	w.sees("No VM migrates now")
	w.sees("default/directruns here" + target) // the cells of a row
	w.gone(source)
	w.shot("migrated")
}

// gone waits until no VM is shown on a node.
func (w *world) gone(node string) {
	w.t.Helper()
	do(w, "VM on "+node, chromedp.Poll[bool](
		`![...document.querySelectorAll("td a")].some(e => e.textContent === "`+node+`")`))
}
