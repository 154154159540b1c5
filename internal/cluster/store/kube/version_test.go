// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// TestCheckVersion: a server whose tokens name no nodes is refused with its version; one that does not answer is not.
func TestCheckVersion(t *testing.T) {
	nettest.Run(t, nil, "ip", "link", "set", "lo", "up")
	for answer, want := range map[string]string{
		`{"major":"1","minor":"36","gitVersion":"v1.36.3"}`:            "",
		`{"major":"1","minor":"32+","gitVersion":"v1.32.0-eks-1"}`:     "",
		`{"major":"2","minor":"0","gitVersion":"v2.0.0"}`:              "",
		`{"major":"1","minor":"31","gitVersion":"v1.31.9"}`:            `of version "v1.31.9" (1.31): before 1.32`,
		`{"major":"1","minor":"9+","gitVersion":"v1.9.1"}`:             `of version "v1.9.1" (1.9+): before 1.32`,
		`{"major":"","minor":"","gitVersion":"v0.0.0-master+$Format"}`: `of version "v0.0.0-master+$Format" (.)`,
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/version" {
				t.Errorf("asked for %s", r.URL)
			}
			fmt.Fprint(w, answer)
		}))
		file := filepath.Join(t.TempDir(), "kubeconfig")
		text := fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"c","context":{"cluster":"c"}}]}`, s.URL,
		)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := Open(Config{
			Access: Access{Kubeconfig: file, Getenv: os.Getenv}, Node: "n1", Log: slog.New(slog.DiscardHandler), Now: time.Now,
			After: time.After,
		})
		if err != nil {
			t.Fatal(err)
		}
		err = k.CheckVersion(t.Context())
		var f *model.Error
		if want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &f)) {
			t.Errorf("%s: %v, want %q", answer, err, want)
		}
		s.Close()
		if err := k.CheckVersion(t.Context()); err == nil ||
			errors.As(err, &f) && f.Code == model.CodeInvalidConf && strings.Contains(err.Error(), "before") {
			t.Errorf("a server that does not answer: %v", err)
		}
	}
}
