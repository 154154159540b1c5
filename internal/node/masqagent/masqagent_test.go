// SPDX-License-Identifier: Apache-2.0

package masqagent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestMasqAgent: the file is followed; an invalid one leaves its last valid content in force.
func TestMasqAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ip-masq-agent")
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	if Follow("", log) != nil {
		t.Error("exceptions without a file")
	}
	ask := Follow(path, log)
	for _, step := range []struct {
		text string
		want string
		wait time.Duration
	}{
		{"", "[169.254.0.0/16 fe80::/10]", time.Minute},
		{
			"nonMasqueradeCIDRs:\n- 10.0.0.0/8\n- fd00::/8\nmasqLinkLocal: true\nresyncInterval: 5s\n",
			"[10.0.0.0/8 fd00::/8 fe80::/10]", 5 * time.Second,
		},
		{"nonMasqueradeCIDRs: 10.0.0.0", "[10.0.0.0/8 fd00::/8 fe80::/10]", 5 * time.Second},
		{`{"nonMasqueradeCIDRs": [], "masqLinkLocalIPv6": true}`, "[169.254.0.0/16]", time.Minute},
		{"# nothing\n", "[169.254.0.0/16 fe80::/10]", time.Minute},
	} {
		if step.text != "" {
			if err := os.WriteFile(path, []byte(step.text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		keep, wait := ask()
		if got := fmt.Sprint(keep); got != step.want || wait != step.wait {
			t.Errorf("%q: %s every %s, want %s every %s", step.text, got, wait, step.want, step.wait)
		}
	}
}
