// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/weft-net/weft/internal/endpoint/attach"
	"github.com/weft-net/weft/internal/endpoint/ledger"
	"github.com/weft-net/weft/internal/nettest"
)

var errCut = errors.New("cut here")

// cut makes an Attacher over the same node and ledger whose calls stop at a step and leave everything as it is, as a
// kill would.
func (n *node) cut(at string) *attach.Attacher {
	cfg := n.cfg
	stopped := false
	cfg.Failpoint = func(name string) error {
		if stopped = stopped || name == at; stopped {
			return errCut
		}
		return nil
	}
	return attach.New(cfg)
}

func TestRecover(t *testing.T) {
	n := newNode(t)
	keptID, keptNS := n.pod()
	kept := n.job(n.list(bridge), keptID, keptNS)
	n.add(kept)
	for _, at := range []string{"after promise plan", "after ipam", "after apply", "before done"} {
		id, ns := n.pod()
		if _, err := n.cut(at).Add(t.Context(), n.job(n.list(bridge), id, ns)); !errors.Is(err, errCut) {
			t.Fatalf("%s: %v", at, err)
		}
	}
	id, ns := n.pod()
	half := n.job(n.list(bridge), id, ns)
	n.add(half)
	if err := n.cut("after releasing").Del(t.Context(), half); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	id, ns = n.pod()
	old := n.job(n.list(bridge), id, ns)
	n.add(old)
	rec, _, err := n.ledger.Get(old.Request.Key())
	if err != nil {
		t.Fatal(err)
	}
	nettest.Run(t, ns, "ip", "link", "del", "eth0") // as a reboot does
	rec.Boot = "an earlier boot"
	if err := n.ledger.Put(rec); err != nil {
		t.Fatal(err)
	}

	n.Attacher = attach.New(n.cfg) // the agent is started again
	report, err := n.Recover(t.Context())
	if err != nil || report.Kept != 1 || report.Undone != 5 || report.Dropped != 1 || len(report.Problems) > 0 {
		t.Errorf("%+v %v", report, err)
	}
	if got := n.reserved(); len(got) != 1 {
		t.Errorf("addresses: %v", got)
	}
	if out := nettest.Run(t, nil, "ip", "-o", "link", "show", "type", "veth"); len(out) == 0 {
		t.Error("the finished attachment is gone")
	}
	if err := n.Check(t.Context(), kept); err != nil {
		t.Error(err)
	}
	if err := n.Del(t.Context(), kept); err != nil {
		t.Error(err)
	}
	// The masquerading elements of the other boot went with it; in this test they did not.
	nettest.Run(t, nil, "nft", "flush", "ruleset")
	n.clean("DEL of the kept one")
}

// A record of a newer program is no reason to fail, and it stays.
func TestRecoverKeepsNewerRecords(t *testing.T) {
	dir := t.TempDir()
	l, err := ledger.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(filepath.Join(dir, "ledger.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	k := []byte("id\x00net\x00eth0")
	err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket([]byte("attachments")).Put(k, []byte(`{"version":99}`)) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	if l, err = ledger.Open(dir); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n.cfg.Records = l
	a := attach.New(n.cfg)
	report, err := a.Recover(t.Context())
	if err != nil || len(report.Problems) != 1 || !errors.Is(report.Problems[0], attach.ErrNewer) {
		t.Errorf("%+v %v", report, err)
	}
	id, ns := n.pod()
	job := n.job(n.list(bridge), id, ns)
	if _, err := a.Add(t.Context(), job); err != nil {
		t.Error(err)
	}
	if err := errors.Join(a.Del(t.Context(), job), a.Drain(t.Context())); err != nil {
		t.Error(err)
	}
	job.Request.ContainerID = "id"
	if _, err := a.Add(t.Context(), job); !errors.Is(err, attach.ErrNewer) {
		t.Errorf("ADD over a newer record: %v", err)
	}
	if err := a.Del(t.Context(), job); !errors.Is(err, attach.ErrNewer) {
		t.Errorf("DEL of a newer record: %v", err)
	}
	n.clean("refused calls")
}

// What an earlier call of the same key left is undone before the ADD.
func TestAddOverRemains(t *testing.T) {
	n := newNode(t)
	id, ns := n.pod()
	job := n.job(n.list(bridge), id, ns)
	if _, err := n.cut("after apply").Add(t.Context(), job); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	nettest.Run(t, ns, "ip", "link", "show", "eth0")
	n.add(job)
	if got := n.reserved(); len(got) != 1 {
		t.Errorf("addresses: %v", got)
	}
	if err := n.cut("before undo ipam").Del(t.Context(), job); !errors.Is(err, errCut) {
		t.Fatal(err)
	}
	n.add(job)
	if err := n.Del(t.Context(), job); err != nil {
		t.Error(err)
	}
	n.clean("DEL")
}

// Calls for one container wait for each other; a GC waits for all; a call whose context ends gets "try again".
func TestOneAtATime(t *testing.T) {
	n := newNode(t)
	finish := filepath.Join(t.TempDir(), "finish")
	n.plugin("slow", `[ "$CNI_COMMAND" = ADD ] && until [ -e `+finish+` ]; do sleep 0.02; done`+"\n"+passOn)
	id, ns := n.pod()
	job := n.job(n.list(bridge, `{"type":"slow"}`), id, ns)
	done := make(chan error)
	go func() { _, err := n.Add(context.Background(), job); done <- err }()
	for len(n.verbs("slow")) == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantCode(t, "DEL beside ADD", n.Del(short, job), 11)
	wantCode(t, "GC beside ADD", n.GC(short, job, nil), 11)
	otherID, otherNS := n.pod()
	other := n.job(n.list(bridge), otherID, otherNS)
	if _, err := n.Add(t.Context(), other); err != nil {
		t.Errorf("another container's ADD: %v", err)
	}
	select {
	case <-done:
		t.Error("the other container had to wait")
	default:
	}
	if err := os.WriteFile(finish, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := errors.Join(n.Del(t.Context(), job), n.Del(t.Context(), other)); err != nil {
		t.Error(err)
	}
	n.clean("DEL")
}
