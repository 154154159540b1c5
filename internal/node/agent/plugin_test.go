// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

// TestPluginKilled kills weft-cni itself, like a runtime after its timeout: the DEL that follows removes whatever the
// agent has created by then.
func TestPluginKilled(t *testing.T) {
	nettest.EndToEnd(t)
	w := newWorld(t)
	w.start()
	before := w.host()
	list := w.list("1.0.0", w.networks()["chain"])
	random := rand.New(rand.NewPCG(3, 4))
	const kills = 40
	killed := 0
	aim := 12 * time.Millisecond // the longest wait, adapted to the speed of the host
	for i := range kills {
		id, ns := fmt.Sprint("c", i), nettest.NS(t, fmt.Sprint("pod", i))
		cmd := exec.Command(filepath.Join(os.Getenv(binVar), "weft-cni"))
		cmd.Env = []string{
			"CNI_COMMAND=ADD", "CNI_CONTAINERID=" + id, "CNI_NETNS=" + ns.Path(), "CNI_IFNAME=eth0",
			"CNI_PATH=" + os.Getenv(binVar),
		}
		conf := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"weft-cni","socket":%q,"delegates":[%s]}`, w.socket(),
			w.networks()["chain"])
		cmd.Stdin = bytes.NewReader([]byte(conf))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.Int64N(int64(aim))))
		_ = cmd.Process.Kill()
		if cmd.Wait() != nil {
			killed++
			aim = min(aim*9/8, 12*time.Millisecond)
		} else { // too late
			aim = max(aim*7/8, time.Millisecond)
		}
		if err := w.del(list, id, ns); err != nil {
			t.Errorf("%s: DEL: %v", id, err)
		}
		if diff := w.settled(before); diff != "" {
			t.Fatalf("%s: left behind: %s", id, diff)
		}
	}
	t.Logf("%d kills, %d hit a live call; the host was as before each time", kills, killed)
	if killed*4 < kills {
		t.Errorf("only %d of %d kills hit a live call", killed, kills)
	}
}
