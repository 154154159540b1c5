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

// noted are machines that note what they are told to undo, by machine: interfaces, or "forgotten".
type noted struct {
	records []Record
	here    map[string]*netns.NS // of the machines whose pod is there
	undone  map[string][]string
	err     error
}

func (n *noted) Has(string) bool                                                { return true }
func (n *noted) Compose(_ model.AttachmentKey, f state.Fragment) state.Fragment { return f }
func (n *noted) Records() ([]Record, error)                                     { return n.records, nil }

func (n *noted) Open(rec Record) *netns.NS { return n.here[rec.Machine.Key] }

func (n *noted) Forget(_ context.Context, rec Record) error { n.note(rec, "forgotten"); return nil }

func (n *noted) note(rec Record, what string) {
	n.undone[rec.Machine.Key] = append(n.undone[rec.Machine.Key], what)
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

// machineOf is the record of a machine with interfaces upon eth0, net1 and no link, in three states.
func machineOf(key, boot, container string) Record {
	on := func(link, name string, s ActState) Act {
		return Act{
			Kind: ActMachine, State: s,
			Interface: &MachineInterface{VMInterface: model.VMInterface{Name: name}, PodLink: link},
		}
	}
	return Record{
		Boot: boot, Machine: &Machine{Key: key, Pod: "pod-" + key, Container: container},
		Acts: []Act{
			{Kind: ActMachine}, on("eth0", "default", ActFinished), on("net1", "blue", ActStarted), on("", "device", ActLeaving),
		},
	}
}

// TestMachinesAreRecovered: what is finished stays, all of a machine whose pod has gone goes, one of an earlier boot is
// forgotten; what cannot be undone is a problem.
func TestMachinesAreRecovered(t *testing.T) {
	known := &noted{
		records: []Record{machineOf("here", "now", "c1"), machineOf("gone", "now", "c2"), machineOf("old", "then", "c3")},
		here:    map[string]*netns.NS{"here": nettest.NS(t, "pod")}, undone: map[string][]string{},
		err: errors.New("not today"),
	}
	var report Report
	in := &machinesIn{known: known, boot: "now", log: slog.New(slog.DiscardHandler)}
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

// TestMachineLeavesItsAttachment: before an attachment is undone, so is what the machines in its container have made of
// it, and nothing else; devices of the node go with the pod's first interface.
func TestMachineLeavesItsAttachment(t *testing.T) {
	for ifName, want := range map[string]map[string][]string{
		"eth0": {"one": {"without a namespace", "default", "device"}}, "net1": {"one": {"without a namespace", "blue"}},
		"net2": {"one": {"without a namespace"}},
	} {
		known := &noted{
			records: []Record{machineOf("one", "now", "c1"), machineOf("other", "now", "c2"), machineOf("old", "then", "c1")},
			undone:  map[string][]string{},
		}
		in := &machinesIn{known: known, boot: "now", log: slog.New(slog.DiscardHandler)}
		rec := Record{Boot: "now", Request: model.Request{Network: "n", ContainerID: "c1", IfName: ifName}}
		in.leave(t.Context(), rec, kernel.Spaces{})
		if d := cmp.Diff(want, known.undone); d != "" {
			t.Errorf("%s (-want +have):\n%s", ifName, d)
		}
	}
}
