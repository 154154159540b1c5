// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/kernel"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/netns"
	"github.com/weft-net/weft/internal/nettest"
	"github.com/weft-net/weft/internal/state"
)

// noted is a VMRegistry that records what is undone, by VM: interfaces, or "forgotten".
type noted struct {
	records []Record
	here    map[string]*netns.NS // of the VMs whose pod exists
	undone  map[string][]string
	err     error
}

func (n *noted) Has(string) bool                                                { return true }
func (n *noted) Compose(_ model.AttachmentKey, f state.Fragment) state.Fragment { return f }
func (n *noted) Records() ([]Record, error)                                     { return n.records, nil }

func (n *noted) Open(rec Record) *netns.NS { return n.here[rec.VM.Key] }

func (n *noted) Forget(_ context.Context, rec Record) error { n.note(rec, "forgotten"); return nil }

func (n *noted) note(rec Record, what string) {
	n.undone[rec.VM.Key] = append(n.undone[rec.VM.Key], what)
}

func (n *noted) Undo(_ context.Context, rec Record, ns *netns.NS, chosen func(Act) bool) error {
	if ns == nil {
		n.note(rec, "without a namespace")
	}
	for _, act := range rec.Acts {
		if act.Interface != nil && chosen(act) {
			n.note(rec, act.Interface.Name)
		}
	}
	return n.err
}

// vmOf is the record of a VM with interfaces on eth0, net1 and no link, in three states.
func vmOf(key, boot, container string) Record {
	on := func(link, name string, s ActState) Act {
		return Act{
			Kind: ActVM, State: s,
			Interface: &VMInterface{VMInterface: model.VMInterface{Name: name}, PodLink: link},
		}
	}
	return Record{
		Boot: boot, VM: &VM{Key: key, Pod: "pod-" + key, Container: container},
		Acts: []Act{
			{Kind: ActVM}, on("eth0", "default", ActFinished), on("net1", "blue", ActStarted), on("", "device", ActUndoing),
		},
	}
}

// TestVMsAreRecovered: finished acts stay; everything of a VM whose pod is gone is undone; a VM of an earlier boot is
// dropped; a failed undo is a problem.
func TestVMsAreRecovered(t *testing.T) {
	known := &noted{
		records: []Record{vmOf("here", "now", "c1"), vmOf("gone", "now", "c2"), vmOf("old", "then", "c3")},
		here:    map[string]*netns.NS{"here": nettest.NS(t, "pod")}, undone: map[string][]string{},
		err: errors.New("not today"),
	}
	var report Report
	in := &podVMs{registry: known, boot: "now", log: slog.New(slog.DiscardHandler)}
	in.recover(t.Context(), &report)
	want := map[string][]string{
		"here": {"blue", "device"}, "gone": {"without a namespace", "default", "blue", "device"}, "old": {"forgotten"},
	}
	if d := cmp.Diff(want, known.undone); d != "" {
		t.Errorf("(-want +have):\n%s", d)
	}
	if len(report.Problems) != 2 || !errors.Is(report.Problems[0], known.err) {
		t.Errorf("problems: %v", report.Problems)
	}
}

// TestVMIsUndoneBeforeItsAttachment: the changes of the container's VMs to an attachment are undone before it, and
// nothing else; devices of the node are undone with the pod's first interface.
func TestVMIsUndoneBeforeItsAttachment(t *testing.T) {
	for ifName, want := range map[string]map[string][]string{
		"eth0": {"one": {"without a namespace", "default", "device"}}, "net1": {"one": {"without a namespace", "blue"}},
		"net2": {"one": {"without a namespace"}},
	} {
		known := &noted{
			records: []Record{vmOf("one", "now", "c1"), vmOf("other", "now", "c2"), vmOf("old", "then", "c1")},
			undone:  map[string][]string{},
		}
		in := &podVMs{registry: known, boot: "now", log: slog.New(slog.DiscardHandler)}
		rec := Record{Boot: "now", Request: model.Request{Network: "n", ContainerID: "c1", IfName: ifName}}
		in.leave(t.Context(), rec, kernel.Spaces{})
		if d := cmp.Diff(want, known.undone); d != "" {
			t.Errorf("%s (-want +have):\n%s", ifName, d)
		}
	}
}
