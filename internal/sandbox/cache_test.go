// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestCacheIsShared: other runtimes may share the CNI cache. Their attachments are not deleted, neither at start nor by
// GC. Attachments in this runtime's namespaces that no sandbox owns are deleted.
func TestCacheIsShared(t *testing.T) {
	w := newWorld(t)
	conf := strings.Replace(stubNet, `"cniVersion":"1.0.0"`, `"cniVersion":"1.1.0"`, 1)
	w.write("net.d/10-stubs.conflist", conf)
	entry := func(id, netns string) {
		if err := os.MkdirAll(w.path("cache/results"), 0o700); err != nil {
			t.Fatal(err)
		}
		w.write("cache/results/stubs-"+id+"-eth0", fmt.Sprintf(
			`{"kind":"cniCacheV1","containerId":%q,"config":%q,"ifName":"eth0","networkName":"stubs","netns":%q,"result":{"cniVersion":"1.0.0"}}`,
			id, base64.StdEncoding.EncodeToString([]byte(conf)), netns))
	}
	entry("theirs", "/run/netns/theirs")
	entry("ours", w.path("state/netns/ours"))
	w.start(-1)
	equal(t, "calls at start", w.verbs(), []string{
		"STATUS stub ", "STATUS second ", "DEL second eth0", "DEL stub eth0", "GC stub ", "GC second ",
	})
	for _, c := range w.calls()[2:4] {
		if f := strings.Split(c, "\x00"); f[3] != "ours" || f[4] != "" {
			t.Errorf("DEL of container %q in namespace %q", f[3], f[4])
		}
	}
	valid, _ := json.Marshal(w.stdin("GC", "stub")["cni.dev/valid-attachments"])
	if want := `[{"containerID":"theirs","ifname":"eth0"}]`; string(valid) != want {
		t.Errorf("valid attachments %s, want %s", valid, want)
	}
	left, _ := os.ReadDir(w.path("cache/results"))
	if len(left) != 1 || left[0].Name() != "stubs-theirs-eth0" {
		t.Errorf("the cache holds %v", left)
	}
	w.quit()
}
