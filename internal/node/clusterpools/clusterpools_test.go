// SPDX-License-Identifier: Apache-2.0

package clusterpools

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/config"
	"github.com/weft-net/weft/internal/cluster/store/dir"
	"github.com/weft-net/weft/internal/ipam/poolrequest"
)

// TestNoController: if the Lease is missing or not renewed, the agent logs it once and weft doctor reports it; a
// renewed Lease is no finding.
func TestNoController(t *testing.T) {
	path, state := t.TempDir(), t.TempDir()
	lease := func(holder, time string) {
		text := fmt.Sprintf(
			"apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: weft-controller, namespace: kube-system}\nspec: {holderIdentity: %s, renewTime: %q}\n", holder, time,
		)
		if err := os.WriteFile(filepath.Join(path, "lease.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := dir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	checks := 0
	note := func() string {
		b, _ := os.ReadFile(filepath.Join(state, poolrequest.NoControllerFile))
		return string(b)
	}
	var noted []string
	m := New(Config{
		Objects: s.Objects(), Apart: true, Needed: func() bool { return true }, StateDir: state,
		Log: slog.New(slog.NewTextHandler(&log, nil)), Network: config.Network{Addresses: config.AddressesPools},
		After: func(time.Duration) <-chan time.Time {
			noted = append(noted, note())
			switch checks++; checks {
			case 3:
				lease("c", "1")
			case 4:
				lease("c", "2")
			case 7:
				lease("c", "3")
			case 8:
				cancel()
				return nil
			}
			return time.After(0)
		},
	})
	if err := m.Run(ctx); err != nil {
		t.Fatal(err)
	}
	none, silent := `"there is no controller"`, `"the controller does not run: c does not renew its lease"`
	if got, want := fmt.Sprint(noted), fmt.Sprint([]string{"", none, none, "", "", silent, silent, ""}); got != want {
		t.Errorf("noted %s, want %s", got, want)
	}
	if n := strings.Count(log.String(), "apply the Deployment weft-controller"); n != 2 {
		t.Errorf("told %d times:\n%s", n, &log)
	}
}
