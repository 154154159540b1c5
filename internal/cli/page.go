// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/web/page"
	"github.com/weft-net/weft/internal/web/server"
)

// pageInterval is how often a view that is looked at is read.
const pageInterval = 3 * time.Second

// endsInterval is the same for the names of pods and nodes.
const endsInterval = 30 * time.Second

// flowsInterval is the same for flows: with what observing takes, a packet is on the screen within a second.
const flowsInterval = 250 * time.Millisecond

func newUICmd(env Env) *cobra.Command {
	source := agents.Source{Env: env}
	var listen string
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show a cluster in a browser: health, map, flows, why connections fail, policies, addresses, VMs",
		Long: `Serves a page on a loopback address of this host until it is interrupted, or its lab is down, and prints its link. The page shows what
weft status, observe, explain, trace, policy, ipam and vm say, by the same requests to the agents and the datastore, with your
rights; agents themselves serve no page. The link opens the page in one browser, which then has a cookie; press Enter for
another link. Over SSH, forward the port: ssh -L PORT:127.0.0.1:PORT HOST.`,
		Example: "  weft ui\n" +
			"  weft ui --dir /run/weft/lab --listen 127.0.0.1:8000",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := source.Open(cmd.Context()) // says now what the page would say later
			if err != nil {
				return err
			}
			ctx, cancel := context.WithCancelCause(cmd.Context())
			defer cancel(nil)
			go func() {
				if c.AwaitDown(ctx) == nil {
					cancel(errLabDown)
				}
			}()
			err = servePage(ctx, env, &source, listen)
			if errors.Is(context.Cause(ctx), errLabDown) {
				ui.Warn(env.Stderr, errLabDown)
			}
			return err
		},
	}
	source.ClusterFlags(cmd)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback `ADDRESS` with the port; 0 chooses one")
	return cmd
}

// errLabDown is why the page of a lab ends.
var errLabDown = errors.New("the lab is down")

// servePage serves until ctx ends.
func servePage(ctx context.Context, env Env, source *agents.Source, listen string) error {
	d := &pageData{source: source, flows: newPageFlows(ctx, source)}
	slow := func(v server.View) server.Source { return server.Source{Read: v, Interval: pageInterval} }
	s, err := server.Listen(ctx, listen, server.Config{
		Page: page.Files(), Now: time.Now, Random: rand.Reader, Log: slog.New(slog.NewTextHandler(env.Stderr, nil)),
		Views: map[string]server.Source{
			"health": slow(d.health), "map": slow(d.nodes), "policies": slow(d.policies), "matrix": slow(d.matrix), "addresses": slow(d.addresses),
			"vms": slow(d.vms), "ends": {Read: d.ends, Interval: endsInterval}, "flows": {Read: d.flows.view, Interval: flowsInterval},
		},
		Actions: map[string]server.Action{"why": d.why, "trace": d.trace},
	})
	if err != nil {
		return ui.UsageError(err)
	}
	link, err := s.URL()
	if err != nil {
		return err
	}
	fmt.Fprintln(env.Stdout, link)
	if env.Stdin != nil {
		go func() {
			for in := bufio.NewScanner(env.Stdin); in.Scan(); {
				if link, err := s.URL(); err != nil {
					ui.Warn(env.Stderr, err)
				} else {
					fmt.Fprintln(env.Stdout, link)
				}
			}
		}()
	}
	return s.Serve(ctx)
}

// connection reads the form of a connection: from, to, port, protocol and network.
func (d *pageData) connection(form url.Values) (*traceFlags, query, error) {
	f := &traceFlags{explainFlags: explainFlags{source: d.source, output: &printer.Format{}}, wait: maxLive}
	f.network = form.Get("network")
	from, to := strings.TrimSpace(form.Get("from")), strings.TrimSpace(form.Get("to"))
	if from == "" || to == "" {
		return nil, query{}, errors.New("both ends are needed: a pod, a node or an address")
	}
	if port := strings.TrimSpace(form.Get("port")); port != "" {
		if strings.Contains(to, ":") && !strings.HasPrefix(to, "[") {
			to = "[" + to + "]"
		}
		to += ":" + port + "/" + form.Get("protocol")
	}
	q, err := f.parse(from, to)
	return f, q, err
}
