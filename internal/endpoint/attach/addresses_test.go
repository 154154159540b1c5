// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/endpoint/attach"
)

// The address and the plan of an interface are one promise.
func TestOnePromise(t *testing.T) {
	n := newNode(t)
	var have []string
	n.cfg.Failpoint = func(s string) error {
		if strings.HasPrefix(s, "after ") {
			have = append(have, s)
		}
		return nil
	}
	n.Attacher = attach.New(n.cfg)
	id, ns := n.pod()
	job := n.job(n.list(bridge), id, ns)
	n.add(job)
	if d := cmp.Diff([]string{"after promise plan", "after ipam", "after apply", "after done"}, have); d != "" {
		t.Error(d)
	}
	rec, found, err := n.ledger.Get(job.Request.Key())
	if err != nil || !found || rec.Stage != attach.Done || len(rec.Acts) != 2 || len(rec.Acts[0].IPs) != 1 ||
		rec.Result == nil {
		t.Errorf("record: %+v %v %v", rec, found, err)
	}
}

// An address that was reserved for an ADD that failed before it was recorded is not allocated and blocks no other ADD.
func TestReservedAndDropped(t *testing.T) {
	n := newNode(t)
	cut := true
	n.cfg.Failpoint = func(s string) error {
		if cut && s == "before promise plan" {
			return errors.New("cut here")
		}
		return nil
	}
	n.Attacher = attach.New(n.cfg)
	id, ns := n.pod()
	job := n.job(n.list(bridge), id, ns)
	if _, err := n.Add(t.Context(), job); err == nil {
		t.Fatal("no failure")
	}
	if _, found, err := n.ledger.Get(job.Request.Key()); err != nil || found {
		t.Errorf("a record is left: %v", err)
	}
	if got := n.reserved(); len(got) != 0 {
		t.Errorf("addresses: %v", got)
	}
	cut = false
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := n.Add(ctx, job); err != nil {
		t.Errorf("the next ADD: %v", err)
	}
}
