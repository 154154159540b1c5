// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/ipam/dhcp/rpc"
)

// A call is read up to the limit, and not beyond.
func TestLimit(t *testing.T) {
	for _, c := range []struct {
		name  string
		stdin int
		taken bool
	}{{"large", rpc.MaxMessage - 1<<10, true}, {"too large", rpc.MaxMessage, false}} {
		t.Run(c.name, func(t *testing.T) {
			here, there := net.Pipe()
			defer func() { _ = here.Close() }()
			if err := here.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			got := make(chan int, 1)
			go serveConn(t.Context(), there, func(_ context.Context, _ string, args rpc.Args) (any, error) {
				got <- len(args.StdinData)
				return nil, nil
			})
			if _, err := io.WriteString(here, rpc.Connect); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(here)
			for line := "-"; strings.TrimSpace(line) != ""; {
				var err error
				if line, err = r.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			out := gob.NewEncoder(here)
			sent := errors.Join(
				out.Encode(rpc.Request{ServiceMethod: rpc.Release, Seq: 7}),
				out.Encode(rpc.Args{StdinData: make([]byte, c.stdin)}))
			var head rpc.Response
			err := gob.NewDecoder(r).Decode(&head)
			if !c.taken {
				if sent == nil || err == nil || len(got) > 0 {
					t.Errorf("sent: %v, answered: %+v, %v", sent, head, err)
				}
				return
			}
			if sent != nil || err != nil || head != (rpc.Response{ServiceMethod: rpc.Release, Seq: 7}) {
				t.Errorf("sent: %v, answered: %+v, %v", sent, head, err)
			} else if n := <-got; n != c.stdin {
				t.Errorf("%d bytes of %d", n, c.stdin)
			}
		})
	}
}
