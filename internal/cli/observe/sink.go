// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/weft-net/weft/internal/cli/printer"
	"github.com/weft-net/weft/internal/flow"
)

// sink prints flows.
type sink interface {
	record(flow.Record) error
	end() error
}

// text prints a line for each.
type text struct {
	w       io.Writer
	numeric bool
}

func (t text) record(r flow.Record) error {
	_, err := fmt.Fprintln(t.w, strings.Join(append([]string{r.Compact(t.numeric)}, r.Rules()...), "\n  "))
	return err
}

func (text) end() error { return nil }

// jsonLines prints a document for each.
type jsonLines struct{ w io.Writer }

func (j jsonLines) record(r flow.Record) error { return json.NewEncoder(j.w).Encode(r) }

func (jsonLines) end() error { return nil }

// documents prints one list of all.
type documents struct {
	format *printer.Format
	w      io.Writer
	all    []flow.Record
}

func (d *documents) record(r flow.Record) error {
	d.all = append(d.all, r)
	return nil
}

func (d *documents) end() error { return d.format.Print(d.w, d.all) }

// rows prints a table. Its columns have fixed widths, because rows are printed as they come; a longer cell moves the
// others of its row.
type rows struct {
	w       io.Writer
	numeric bool
	begun   bool
}

// rowFormat are the columns.
const rowFormat = "%-12s  %-12s  %-8s  %-40s  %-40s  %-6s  %-8s  %s\n"

func (t *rows) record(r flow.Record) error {
	if !t.begun {
		t.begun = true
		if _, err := fmt.Fprintf(t.w, rowFormat,
			"TIME", "NODE", "KIND", "FROM", "TO", "PROTO", "VERDICT", "WHY"); err != nil {
			return err
		}
	}
	to := r.To.Text(t.numeric)
	if r.Via != nil {
		to += " via " + r.Via.Text(t.numeric)
	}
	why := r.Why()
	if why == "" {
		why = "-"
	}
	_, err := fmt.Fprintf(t.w, rowFormat, r.Clock(), r.Node, r.Kind, r.From.Text(t.numeric), to, r.Protocol, r.Verdict, why)
	return err
}

func (*rows) end() error { return nil }
