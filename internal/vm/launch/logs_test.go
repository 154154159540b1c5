// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/vm/qemu"
)

// TestLogs: a guest that floods its console does not fill the node: its log is truncated, other logs are not.
func TestLogs(t *testing.T) {
	const most = 1000
	l := &launch{Config: Config{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}}
	short := filepath.Join(l.Dir, weftGuestLog)
	if err := os.WriteFile(short, make([]byte, most), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(qemu.ConsoleLog(l.Dir), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	write := func(n int) {
		if _, err := log.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
	}
	write(most + 1)
	stop := l.limitLogs(t.Context(), time.Millisecond, most)
	for until := time.Now().Add(30 * time.Second); size(t, log.Name()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatal("the log is not truncated")
		}
	}
	stop()
	write(10)
	if n := size(t, log.Name()); n != 10 {
		t.Errorf("the writer does not append: %d bytes", n)
	}
	if n := size(t, short); n != most {
		t.Errorf("a short log has %d bytes", n)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}
