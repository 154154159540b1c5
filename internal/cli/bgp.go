// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/agents"
	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/node/adminapi"
	"github.com/weft-net/weft/internal/node/nodebgp"
)

// bgpTimeout limits the answer of the agent.
const bgpTimeout = 10 * time.Second

func newBGPCmd(env Env) *cobra.Command {
	var stateDir string
	var output *printer.Format
	var watch *printer.Watch
	cmd := &cobra.Command{
		Use:   "bgp",
		Short: "Show this node's BGP sessions and routes",
		Long: `Shows the sessions of the node's BGP speaker, weft-bgp, what the node announces, the routes that it learned, and objects
that contradict each other. -o wide prints a table of the sessions instead, -o name the peers' names. With --node it runs on
that node.

Keys of -o json: node, asNumber, routerID, running, error, synced, peers [{name, address, interface, asNumber, session,
since, received, accepted, advertised, error}], announced [{prefix, communities}], learned [{prefix, paths [{peer,
nextHop, stale}], link}], problems [{message, hint}].`,
		Example: "  weft bgp\n" +
			"  weft bgp -o wide --watch\n" +
			"  weft bgp --node node2",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := func(ctx context.Context) (printer.Result, error) {
				var s nodebgp.Status
				q := adminapi.Request{
					Socket: adminapi.InStateDir(stateDir), Method: http.MethodGet, Path: adminapi.RouteBGP, Timeout: bgpTimeout,
					Server: "agent that speaks BGP", Hint: "start the agent, or set bgp.socket in its configuration",
				}
				err := q.Do(ctx, &s)
				return bgpResult(s, output), err
			}
			return watch.Show(cmd.Context(), env.Stdout, env.Stderr, query)
		},
	}
	cmd.Flags().StringVar(&stateDir, "state-dir", env.Variable(ui.StateDirVariable, meshStateDir), "state `DIR` of the agent")
	output = printer.Objects(cmd.Flags(), true)
	watch = output.Watch(cmd.Flags())
	agents.OnNode(env, cmd, "state-dir")
	return cmd
}

// bgpResult is the state in the formats of weft bgp.
func bgpResult(s nodebgp.Status, output *printer.Format) printer.Result {
	r := printer.Result{Document: s, Same: s}
	if output.Is(printer.Wide) || output.Is(printer.Name) {
		t := printer.Table{Header: []string{"PEER", "ADDRESS", "AS", "SESSION", "SINCE", "RECEIVED", "ACCEPTED", "ANNOUNCED", "ERROR"}}
		for _, p := range s.Peers {
			since := ""
			if p.Since != 0 {
				since = time.Unix(p.Since, 0).UTC().Format(time.RFC3339)
			}
			count := func(n uint64) string { return strconv.FormatUint(n, 10) }
			t.Row(p.Name, p.Name, p.Where(), count(uint64(p.ASN)), p.Session, since, count(p.Received), count(p.Accepted),
				count(p.Advertised), p.Error)
		}
		r.Tables = []printer.Table{t}
		return r
	}
	line := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		r.Lines = append(r.Lines, printer.Line{Text: text, Gone: "gone: " + text})
	}
	line("node %s, AS %d, router ID %s", s.Node, s.ASN, s.RouterID)
	for _, p := range s.Peers {
		text := fmt.Sprintf("peer %s (%s), AS %d: %s, %d of %d routes accepted, %d announced", p.Where(), p.Name, p.ASN, p.Session,
			p.Accepted, p.Received, p.Advertised)
		if p.Error != "" {
			text += ", last error: " + p.Error
		}
		line("%s", text)
	}
	for _, a := range s.Announced {
		line("%s", strings.TrimSpace(fmt.Sprintf("announced %s %s", a.Prefix, strings.Join(a.Communities, " "))))
	}
	for _, l := range s.Learned {
		var hops []string
		for _, p := range l.Paths {
			hop := "via " + p.NextHop.String()
			if p.Stale {
				hop += " (stale)"
			}
			hops = append(hops, hop)
		}
		text := fmt.Sprintf("learned %s %s", l.Prefix, strings.Join(hops, " "))
		if l.Link == "" {
			line("%s, no route to the next hop", text)
		} else {
			line("%s dev %s", text, l.Link)
		}
	}
	for _, p := range s.Problems {
		line("problem: %s\n  hint: %s", p.Message, p.Hint)
	}
	if s.Error != "" {
		line("error: %s", s.Error)
	}
	return r
}
