// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/model"
)

// TestOn: where a VM runs according to its status, for the awaiting node n2.
func TestOn(t *testing.T) {
	for status, want := range map[string]bool{
		`{}`:                 false,
		`{"nodeName": "n1"}`: false,
		`{"nodeName": "n2"}`: true,
		`{"nodeName": "n2", "migrationState": {}}`:                                                                                             true,
		`{"nodeName": "n1", "migrationState": {"targetNode": "n2", "targetNodeDomainDetected": true}}`:                                         false,
		`{"nodeName": "n1", "migrationState": {"targetNode": "n2", "targetNodeDomainReadyTimestamp": "2026-11-21T23:00:00Z"}}`:                 true,
		`{"nodeName": "n1", "migrationState": {"targetNode": "n2", "targetNodeDomainReadyTimestamp": null}}`:                                   false,
		`{"nodeName": "n1", "migrationState": {"targetNode": "n2", "completed": true}}`:                                                        true,
		`{"nodeName": "n2", "migrationState": {"targetNode": "n2", "completed": true}}`:                                                        true,
		`{"nodeName": "n1", "migrationState": {"targetNode": "n2", "completed": true, "failed": true}}`:                                        false,
		`{"nodeName": "n1", "migrationState": {"targetNode": "n2", "targetNodeDomainReadyTimestamp": "2026-11-21T23:00:00Z", "failed": true}}`: false,
		`{"nodeName": "n1", "migrationState": {"targetNode": "n3", "completed": true}}`:                                                        false,
		// it was here, and migrates on
		`{"nodeName": "n2", "migrationState": {"targetNode": "n3"}}`:                                        false,
		`{"nodeName": "n2", "migrationState": {"sourceNode": "n2", "targetNode": "n3", "completed": true}}`: false,
	} {
		var i instance
		if err := json.Unmarshal([]byte(`{"status": `+status+`}`), &i); err != nil {
			t.Fatal(err)
		}
		if got := i.on("n2"); got != want {
			t.Errorf("%s: %v, want %v", status, got, want)
		}
	}
}

// TestAllows: the pod that the instance names as the target of its migration may take over the addresses, or the
// source if the migration has not completed.
func TestAllows(t *testing.T) {
	for status, want := range map[string]bool{
		`{}`:                 false,
		`{"nodeName": "n2"}`: false, // it runs on this node, in another pod
		`{"migrationState": {"targetNode": "n2", "completed": true}}`:                                       false,
		`{"migrationState": {"targetNode": "n2", "targetPod": "other"}}`:                                    false,
		`{"migrationState": {"targetNode": "n2", "targetPod": "db-2"}}`:                                     true,
		`{"migrationState": {"targetNode": "n2", "targetPod": "db-2", "completed": true}}`:                  true,
		`{"migrationState": {"targetNode": "n2", "targetPod": "db-2", "completed": true, "failed": true}}`:  false,
		`{"migrationState": {"targetNode": "n3", "targetPod": "db-3", "sourcePod": "db-2"}}`:                true,
		`{"migrationState": {"targetPod": "db-3", "sourcePod": "db-2", "completed": true}}`:                 false,
		`{"migrationState": {"targetPod": "db-3", "sourcePod": "db-2", "completed": true, "failed": true}}`: true,
	} {
		var i instance
		if err := json.Unmarshal([]byte(`{"status": `+status+`}`), &i); err != nil {
			t.Fatal(err)
		}
		if got := i.allows("db-2"); got != want {
			t.Errorf("%s: %v, want %v", status, got, want)
		}
		if i.allows("") {
			t.Errorf("%s: a pod without a name is allowed", status)
		}
	}
}

// TestWatchInstance: an instance is read once a second, less often if there is none, until the VM is here; a read error is
// logged once.
func TestWatchInstance(t *testing.T) {
	path := t.TempDir()
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	says := func(status string) {
		text := fmt.Sprintf(
			`{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"namespace": "default", "name": "db"}, "status": %s}`, status,
		)
		if err := os.WriteFile(filepath.Join(path, "new"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(path, "new"), filepath.Join(path, "db.json")); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	waits, ticks := make(chan time.Duration), make(chan time.Time)
	m := New(Config{
		Node: "n2", Objects: s.Objects(), Log: slog.New(slog.NewTextHandler(&log, nil)),
		After: func(d time.Duration) <-chan time.Time { waits <- d; return ticks },
	})
	f := &vmFollower{m: m, vm: model.VMRef{Namespace: "default", Name: "db"}}
	statuses := f.watchInstance(t.Context())
	select {
	case w := <-statuses: // CNI_ARGS name the VM
		if w != (status{allowed: true}) {
			t.Errorf("%+v", w)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("nothing is said of a machine without an instance")
	}
	next := func(want time.Duration) {
		t.Helper()
		select {
		case got := <-waits:
			if got != want {
				t.Errorf("looks again after %s, want %s", got, want)
			}
		case <-statuses:
			t.Fatal("the machine is said to be here")
		case <-time.After(30 * time.Second):
			t.Fatal("nobody looks")
		}
	}
	for _, wait := range []time.Duration{1, 2, 4, 8, 10, 10} {
		next(wait * time.Second)
		ticks <- time.Time{}
	}
	next(instancePeriodMax)
	for _, status := range []string{
		`{"nodeName": "n1"}`,
		`{"nodeName": "n1", "migrationState": {"targetNode": "n2"}}`,
		`{"nodeName": "n1", "migrationState": {"targetNode": "n2", "completed": true, "failed": true}}`,
	} {
		says(status)
		ticks <- time.Time{}
		next(instancePeriod)
	}
	says(`{"nodeName": "n2", "migrationState": {"targetNode": "n2", "completed": true}}`)
	ticks <- time.Time{}
	select {
	case w := <-statuses:
		if !w.here {
			t.Errorf("%+v", w)
		}
	case d := <-waits:
		t.Fatalf("looks again after %s", d)
	case <-time.After(30 * time.Second):
		t.Fatal("nobody says that the machine is here")
	}
	if n := strings.Count(log.String(), "only its packets show"); n != 1 || !strings.Contains(log.String(), "level=INFO") {
		t.Errorf("said %d times: %s", n, log.String())
	}
}
