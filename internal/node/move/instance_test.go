// SPDX-License-Identifier: Apache-2.0

package move

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

// What a machine's status says of where it runs, as node n2 reads it that awaits it.
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
		// it was here, and goes on
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

// TestAllows: of a machine with an instance, the pod that the instance names as the target of its migration may take
// the addresses over, or its source where the migration has not come to its end.
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

// An instance is looked at once a second, more seldom where there is none, until it says that the machine is here; that
// it cannot be read is said once.
func TestLook(t *testing.T) {
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
	f := &follower{m: m, vm: model.VMRef{Namespace: "default", Name: "db"}}
	words := f.look(t.Context())
	select {
	case w := <-words: // CNI_ARGS say which machine it is
		if w != (word{allowed: true}) {
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
		case <-words:
			t.Fatal("the machine is said to be here")
		case <-time.After(30 * time.Second):
			t.Fatal("nobody looks")
		}
	}
	for _, wait := range []time.Duration{1, 2, 4, 8, 10, 10} {
		next(wait * time.Second)
		ticks <- time.Time{}
	}
	next(lookMost)
	for _, status := range []string{
		`{"nodeName": "n1"}`,
		`{"nodeName": "n1", "migrationState": {"targetNode": "n2"}}`,
		`{"nodeName": "n1", "migrationState": {"targetNode": "n2", "completed": true, "failed": true}}`,
	} {
		says(status)
		ticks <- time.Time{}
		next(lookPeriod)
	}
	says(`{"nodeName": "n2", "migrationState": {"targetNode": "n2", "completed": true}}`)
	ticks <- time.Time{}
	select {
	case w := <-words:
		if !w.here {
			t.Errorf("%+v", w)
		}
	case d := <-waits:
		t.Fatalf("looks again after %s", d)
	case <-time.After(30 * time.Second):
		t.Fatal("nobody says that the machine is here")
	}
	if n := strings.Count(log.String(), "other signs count"); n != 1 || !strings.Contains(log.String(), "level=INFO") {
		t.Errorf("said %d times: %s", n, log.String())
	}
}
