// SPDX-License-Identifier: Apache-2.0

package phase1

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// TestDirect: the guest has the pod's address and place on the wire, also where that is routed; the pod has all that it had.
func TestDirect(t *testing.T) {
	for name, attach := range worlds() {
		for _, how := range state.JoinWays() {
			t.Run(name+"/"+string(how), func(t *testing.T) { direct(t, name, attach, how) })
		}
	}
}

func direct(t *testing.T, name string, attach func(*world), how state.JoinHow) {
	w := newWorld(t)
	attach(w)
	far := "169.254.1.1"
	if name == "flannel" {
		far = "10.244.1.1"
	}
	before := w.looks()
	in := machine(model.VMDirect)
	in.Join = how
	if _, err := w.Start(t.Context(), w.pod, "pod1", in); errors.Is(err, unix.EPERM) || errors.Is(err, ebpf.ErrNotSupported) {
		nettest.Without(t, fmt.Sprintf("links cannot be joined by %s here: %v", how, err))
	}
	guest := w.boot(in)
	w.serve(guest, ":80", "guest")
	w.serve(w.pod, ":80", "pod")
	w.serve(w.far, ":81", "far")
	w.ping(guest, far)
	w.called(guest, far+":81", "far 10.244.1.5")
	w.called(w.far, "10.244.1.5:80", "guest "+far)
	if name == "flannel" {
		w.ping(guest, "fd00:1::1")
		w.called(guest, "[fd00:1::1]:81", "far fd00:1::5")
		w.called(w.far, "[fd00:1::5]:80", "guest fd00:1::1")
	}
	for line := range strings.Lines(before) {
		if !strings.Contains(w.looks(), line) {
			t.Errorf("the pod had, and has no more: %s", line)
		}
	}
	w.undo()
	if d := cmp.Diff(before, w.looks()); d != "" {
		t.Errorf("after undo (-before +after):\n%s", d)
	}
}
