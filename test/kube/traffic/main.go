// SPDX-License-Identifier: Apache-2.0

// Command traffic sends numbered UDP datagrams to its peer a thousand times per second, receives the peer's, and
// reports over HTTP the losses, the longest gap, and the state of one TCP connection. Two of them measure the effect of
// an upgrade of the network on running pods.
//
//	traffic [-listen :7000] [-report :8080] [-every 1ms]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "traffic:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	listen := flag.String("listen", ":7000", "`ADDRESS` that datagrams come to")
	report := flag.String("report", ":8080", "`ADDRESS` of the report")
	every := flag.Duration("every", time.Millisecond, "time between two datagrams")
	flag.Parse()
	conn, err := net.ListenPacket("udp", *listen)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if udp, ok := conn.(*net.UDPConn); ok {
		_ = udp.SetReadBuffer(1 << 20) // best effort: on a busy host this program may not be scheduled in time
	}
	streams, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	defer func() { _ = streams.Close() }()
	s, st := &sender{conn: conn, every: *every}, &stream{ctx: ctx}
	m := newMeter()
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /peer", s.setPeer) // starts sending
	mux.HandleFunc("PUT /stream", st.begin)
	mux.HandleFunc("DELETE /peer", func(http.ResponseWriter, *http.Request) { s.peer.Store(nil) })
	mux.HandleFunc("DELETE /report", func(http.ResponseWriter, *http.Request) { m.reset() })
	mux.HandleFunc("GET /report", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(struct {
			Sent       uint64 `json:"sent"`
			Refused    uint64 `json:"refused"`
			PauseMicro int64  `json:"pauseMicro"`
			Dropped    uint64 `json:"dropped"`
			Stream     Stream `json:"stream"`
			Report
		}{s.sent.Load(), s.refused.Load(), s.pause.Load(), dropped(), st.report(), m.report(time.Now())})
	})
	server := &http.Server{Addr: *report, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 4)
	go func() { failed <- echo(streams) }()
	go func() { failed <- server.ListenAndServe() }()
	go func() { failed <- s.run(ctx) }()
	go func() { failed <- m.receive(conn) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return errors.Join(server.Close(), ctx.Err())
	}
}
