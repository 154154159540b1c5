// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/ipam/blocks"
)

// examined is the document of weft cni validate -o json.
type examined struct {
	File string `json:"file"`
	OK   bool   `json:"ok"`
	cni.Report
}

func newCNIValidateCmd(env Env) *cobra.Command {
	var strict bool
	var output, binDirs string
	cmd := &cobra.Command{
		Use:   "validate FILE",
		Short: "Check a network configuration without using it",
		Long: "Reads a CNI network configuration (.conf, .conflist or .json; - is standard input), or those of the\n" +
			"NetworkAttachmentDefinitions of a manifest, and says what is wrong with it: errors, with which an ADD fails, and\n" +
			"warnings: unknown keys with the nearest known one, settings without effect, keys that stand twice or belong to the\n" +
			"runtime, types that are neither weft's own nor programs of --cni-bin-dir, or that only the agent serves. Exits with 1 when there are errors, and with --strict\n" +
			"also when there are warnings.",
		Args: oneFile,
		RunE: func(_ *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return ui.UsageError(fmt.Errorf("output %q is neither text nor json", output))
			}
			b, err := ui.ReadConf(env, args[0])
			if err != nil {
				return err
			}
			confs, err := confsIn(args[0], b)
			if err != nil {
				return err
			}
			var all []examined
			for _, c := range confs {
				e := c.examine(filepath.SplitList(binDirs))
				e.OK = e.Report.OK(strict)
				all = append(all, e)
			}
			return printExamined(env.Stdout, all, strict, output)
		},
	}
	binDirs = cmp.Or(env.Getenv("CNI_PATH"), "/opt/cni/bin:/usr/lib/cni")
	cmd.Flags().StringVar(&binDirs, "cni-bin-dir", binDirs,
		"where plugins are that weft does not have; several directories are separated by :")
	cmd.Flags().BoolVar(&strict, "strict", false, "count warnings as errors")
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// sharedTypes are the types of the whole cluster's addresses, which only an agent gives.
func sharedTypes() []string {
	var out []string
	for _, shared := range blocks.Readers(os.ReadFile) {
		out = append(out, shared.Type())
	}
	return out
}

func oneFile(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return ui.UsageError(errors.New("name one configuration file"))
	}
	return nil
}

// printExamined prints the reports and returns the error that the exit code comes from. One is one document, several
// are a list.
func printExamined(w io.Writer, all []examined, strict bool, output string) error {
	switch {
	case output == "text":
		for _, e := range all {
			e.print(w)
		}
	case len(all) == 1:
		if err := ui.PrintJSON(w, all[0]); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	default:
		if err := ui.PrintJSON(w, all); err != nil {
			return fmt.Errorf("report: %w", err)
		}
	}
	var bad []error
	for _, e := range all {
		switch {
		case e.OK:
		case strict && len(e.Errors) == 0:
			bad = append(bad, fmt.Errorf("configuration %s: %d warnings (--strict)", e.File, len(e.Warnings)))
		default:
			bad = append(bad, fmt.Errorf("configuration %s: %d errors, %d warnings", e.File, len(e.Errors), len(e.Warnings)))
		}
	}
	return errors.Join(bad...)
}

func (e examined) print(w io.Writer) {
	for _, p := range e.Errors {
		fmt.Fprintf(w, "%s: error: %s\n", e.File, p)
	}
	for _, warning := range e.Warnings {
		fmt.Fprintf(w, "%s: warning: %s\n", e.File, warning)
	}
	if len(e.Errors)+len(e.Warnings) == 0 {
		fmt.Fprintf(w, "%s: network %q, cniVersion %s, plugins %v: no errors, no warnings\n", e.File, e.Network,
			e.CNIVersion, e.Plugins)
	}
}
