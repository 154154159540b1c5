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

// ends counts how often it was said that weft-guest has ended.
type ends chan string

func (e ends) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "weft-guest ended") {
		e <- string(b)
	}
	return len(b), nil
}

// TestSpeakerAgain: a weft-guest that ends at once again and again is given up, and the machine with it; one that now
// and then ends after it has run well is started for as long as the machine runs.
func TestSpeakerAgain(t *testing.T) {
	program, err := exec.LookPath("false")
	if err != nil {
		t.Fatal(err) // coreutils has it
	}
	for well, givenUp := range map[time.Duration]bool{time.Hour: true, time.Nanosecond: false} {
		said := make(ends, 100)
		l := &launch{Config: Config{Dir: t.TempDir(), Speaker: program, Log: slog.New(slog.NewTextHandler(said, nil))}}
		l.Input.VM.Owner, l.Pod = uint32(os.Geteuid()), host.Pod{}
		l.record.Networks = []phase1.Network{{}}
		l.record.Networks[0].Guest = &model.Guest{}
		l.speaker = speaker{problem: make(chan error, 1), well: well}
		l.speak(t.Context())
		for range tries {
			<-said
		}
		select {
		case err := <-l.speaker.problem:
			if !givenUp || err.Error() != "it ended 5 times: exit status 1" {
				t.Errorf("well after %s: given up: %v", well, err)
			}
		case <-said:
			if givenUp {
				t.Errorf("well after %s: not given up", well)
			}
		}
		l.speaker.end()
	}
}
