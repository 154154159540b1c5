// SPDX-License-Identifier: Apache-2.0

package hostlocal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/model"
)

// A hold changes nothing until it is kept, keeps others out until it ends, and is for nothing when it is dropped.
func TestHold(t *testing.T) {
	dir := t.TempDir()
	a := New(Config{DataDir: dir, CallerKnows: true})
	const conf = `{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]]}`
	h, err := a.Reserve(t.Context(), req(section(conf), "one"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("10.1.0.2/24 via 10.1.0.1, fd00::2/64 via fd00::1", prefixes(h.Result())); d != "" {
		t.Error(d)
	}
	if got := taken2(t, dir); len(got) != 0 {
		t.Errorf("taken before it is kept: %v", got)
	}
	soon, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := a.Reserve(soon, req(section(conf), "two")); fault(t, err).Code != model.CodeTryAgain {
		t.Errorf("a second hold: %v", err)
	}
	h.Cancel()
	h.Cancel()
	again, err := a.Reserve(t.Context(), req(section(conf), "two"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(h.Result().IPs, again.Result().IPs,
		cmp.Comparer(func(a, b model.IP) bool { return a.Address == b.Address })); d != "" {
		t.Error(d)
	}
	if err := again.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := taken2(t, dir); len(got) != 2 {
		t.Errorf("taken: %v", got)
	}
}

// When one of the addresses is allocated by a program that ignores the lock, the others are released.
func TestHoldIsAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	a := New(Config{DataDir: dir, CallerKnows: true})
	h, err := a.Reserve(t.Context(),
		req(section(`{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]]}`), "one"))
	if err != nil {
		t.Fatal(err)
	}
	thief := filepath.Join(dir, "net", "fd00::2")
	if err := os.WriteFile(thief, []byte("thief\r\neth0"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = h.Commit()
	var f *model.Error
	if !errors.As(err, &f) || f.Code != model.CodeTryAgain {
		t.Errorf("%v", err)
	}
	if got := taken2(t, dir); len(got) != 1 {
		t.Errorf("taken: %v", got)
	}
}
