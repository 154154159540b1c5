// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/host"
	"github.com/weft-net/weft/internal/vm/phase1"
)

// endLog receives the log lines of a weft-guest that ended.
type endLog chan string

func (e endLog) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "weft-guest ended") {
		e <- string(b)
	}
	return len(b), nil
}

// TestWeftGuestRestart: a weft-guest that always ends at once makes the VM fail; one that runs long enough between
// restarts is restarted as long as the VM runs.
func TestWeftGuestRestart(t *testing.T) {
	program, err := exec.LookPath("false")
	if err != nil {
		t.Fatal(err) // part of coreutils
	}
	for healthy, fails := range map[time.Duration]bool{time.Hour: true, time.Nanosecond: false} {
		logged := make(endLog, 100)
		l := &launch{Config: Config{Dir: t.TempDir(), WeftGuest: program, Log: slog.New(slog.NewTextHandler(logged, nil))}}
		l.Input.VM.Owner, l.Pod = uint32(os.Geteuid()), host.Pod{}
		l.record.Networks = []phase1.Network{{}}
		l.record.Networks[0].Guest = &model.GuestConfig{}
		l.weftGuest = weftGuest{problem: make(chan error, 1), healthy: healthy}
		l.startWeftGuest(t.Context())
		for range maxStarts {
			<-logged
		}
		select {
		case err := <-l.weftGuest.problem:
			if !fails || err.Error() != "it ended 5 times: exit status 1" {
				t.Errorf("healthy after %s: failed: %v", healthy, err)
			}
		case <-logged:
			if fails {
				t.Errorf("healthy after %s: did not fail", healthy)
			}
		}
		l.weftGuest.end()
	}
}
