// SPDX-License-Identifier: Apache-2.0

package command

import (
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/lab"
	"github.com/weft-net/weft/internal/model"
)

func newLabUICmd(env ui.Env, f *labFlags) *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show the lab in a browser",
		Long: "Executes `weft ui` for the lab: serves a page on a loopback address until it is interrupted or the lab is down, and\n" +
			"prints its link. Press Enter for another link.",
		Example: "  weft lab ui\n" +
			"  weft lab ui --listen 127.0.0.1:8000",
		Args: ui.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			d, err := lab.At(f.dir)
			if err != nil {
				return err
			}
			weft := filepath.Join(filepath.Dir(env.Self), "weft")
			argv := []string{weft, "ui", "--dir", string(d), "--listen", listen}
			if err := syscall.Exec(weft, argv, os.Environ()); err != nil {
				return model.Errorf(model.CodeIO, "install weft in the directory of weft-lab", "%s: %w", weft, err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "loopback `ADDRESS` with the port; 0 chooses one")
	return cmd
}
