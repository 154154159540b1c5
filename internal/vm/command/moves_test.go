// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/migration"
)

// movesAgent runs the API of an agent with one VM, and returns the state directory.
func movesAgent(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- adminapi.Routes{
			"GET /move/machines": func(*http.Request) (any, error) {
				return []migration.Attachment{{
					VM:        model.VMRef{Namespace: "default", Name: "db"},
					Key:       model.AttachmentKey{Network: "weft", ContainerID: "7c5a", IfName: "eth0"},
					Addresses: []netip.Addr{netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("fd77::c0")}, State: "awaited",
				}}, nil
			},
			"POST /move/here": func(r *http.Request) (any, error) {
				if r.FormValue("namespace")+"/"+r.FormValue("name") != "default/db" {
					return nil, model.Errorf(model.CodeUnknownContainer, "", "the VM is not here")
				}
				return struct{}{}, nil
			},
		}.Serve(ctx, adminapi.InStateDir(dir), slog.New(slog.DiscardHandler))
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := migration.ListAttachments(t.Context(), adminapi.InStateDir(dir)); err == nil {
			return dir
		} else if time.Now().After(until) {
			t.Fatal(err)
		}
	}
}

func runMoves(t *testing.T, env ui.Env) int {
	t.Helper()
	cmd := &cobra.Command{Use: "vm"}
	cmd.AddCommand(NewMoves(env), NewHere())
	return ui.Run(t.Context(), cmd, env)
}

// TestVMMoves: the output and the errors of moves and here. internal/node/agent tests them with a real agent.
func TestVMMoves(t *testing.T) {
	dir := movesAgent(t)
	const table = "VM          STATE    ADDRESSES           NETWORK  INTERFACE  CONTAINER\n" +
		"default/db  awaited  10.77.0.1,fd77::c0  weft     eth0       7c5a\n"
	for _, c := range []struct {
		args   []string
		exit   int
		stdout string
		stderr string // a part
	}{
		{[]string{"moves"}, 0, table, ""},
		{[]string{"moves", "-o", "xml"}, 2, "", "xml"},
		{[]string{"moves", "default/db"}, 2, "", "unexpected argument"},
		{[]string{"here", "default/db"}, 0, "", ""},
		{[]string{"here", "default/web"}, 1, "", "the VM is not here"},
		{[]string{"here", "db"}, 2, "", `VM "db" is not NAMESPACE/NAME`},
		{[]string{"here", "/db"}, 2, "", `VM "/db" is not NAMESPACE/NAME`},
		{
			[]string{"moves", "--state-dir", filepath.Join(dir, "none")},
			1, "",
			"no agent that serves VM migrations answers at",
		},
		{[]string{"here", "default/db", "--state-dir", filepath.Join(dir, "none")}, 1, "", "start the agent"},
	} {
		var out, errs bytes.Buffer
		args := append([]string{c.args[0], "--state-dir", dir}, c.args[1:]...)
		exit := runMoves(t, ui.Env{Args: args, Getenv: func(string) string { return "" }, Stdout: &out, Stderr: &errs})
		if exit != c.exit || cmp.Diff(c.stdout, out.String()) != "" || !strings.Contains(errs.String(), c.stderr) {
			t.Errorf("%v: exit %d, want %d\n%s%s", c.args, exit, c.exit, cmp.Diff(c.stdout, out.String()), errs.String())
		}
	}
	var out bytes.Buffer
	runMoves(t, ui.Env{
		Args: []string{"moves", "-o", "json", "--state-dir", dir}, Getenv: func(string) string { return "" }, Stdout: &out,
		Stderr: io.Discard,
	})
	var all []migration.Attachment
	if err := json.Unmarshal(out.Bytes(), &all); err != nil || len(all) != 1 || all[0].State != "awaited" ||
		all[0].VM.Name != "db" {
		t.Errorf("%v %s", err, out.String())
	}
}
