// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-net/weft/internal/nettest"
)

// host is the state of a node that an attachment may leave something in.
type host struct {
	Links, Addrs, Routes4, Routes6, Rules []map[string]any
	Nft                                   string
	Files                                 []string
}

// takeSnapshot reads the host's state; dirs are the directories of files.
func takeSnapshot(t testing.TB, dirs ...string) host {
	t.Helper()
	h := host{
		Links:   ipObjects(t, "ip", "-j", "link", "show"),
		Addrs:   ipObjects(t, "ip", "-j", "addr", "show"),
		Routes4: ipObjects(t, "ip", "-j", "route", "show", "table", "all"),
		Routes6: ipObjects(t, "ip", "-j", "-6", "route", "show", "table", "all"),
		Rules:   ipObjects(t, "ip", "-j", "rule", "show"),
		Nft:     nettest.Run(t, nil, "nft", "list", "ruleset"),
	}
	for _, dir := range dirs {
		h.Files = append(h.Files, filesIn(t, dir)...)
	}
	return h
}

// ipObjects runs ip -j and removes volatile fields.
func ipObjects(t testing.TB, argv ...string) []map[string]any {
	t.Helper()
	var list []map[string]any
	out := nettest.Run(t, nil, argv...)
	if strings.TrimSpace(out) == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%s: %v", strings.Join(argv, " "), err)
	}
	for _, m := range list {
		dropVolatile(m)
	}
	// The kernel adds these when a link has a carrier, after duplicate address detection.
	return slices.DeleteFunc(list, func(m map[string]any) bool {
		dst, _ := m["dst"].(string)
		return strings.HasPrefix(dst, "fe80:") || strings.HasPrefix(dst, "ff00:")
	})
}

func dropVolatile(m map[string]any) {
	for _, key := range []string{
		"ifindex", "link_index", "stats64", "valid_life_time", "preferred_life_time", "operstate",
		"flags", "expires", "link_netnsid", "tentative",
	} {
		delete(m, key)
	}
	if infos, ok := m["addr_info"].([]any); ok {
		for _, info := range infos {
			if mm, ok := info.(map[string]any); ok {
				dropVolatile(mm)
			}
		}
	}
}

// filesIn lists files, except for locks and counters of host-local, which stay.
func filesIn(t testing.TB, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		switch name := d.Name(); {
		case name == "gate", name == "turn", name == "lock", strings.HasPrefix(name, "last_reserved_ip"):
		default:
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// expectSameHost waits until the host is as before: the kernel deletes links of a namespace asynchronously.
func expectSameHost(t testing.TB, what string, before host, dirs ...string) {
	t.Helper()
	diff := ""
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if diff = cmp.Diff(before, takeSnapshot(t, dirs...)); diff == "" {
			return
		}
	}
	t.Fatalf("%s: the host is not as before:\n%s", what, diff)
}
