// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/weft-net/weft/internal/cli/ui"
	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/vm/qemu"
)

// detachKey detaches from a console: Ctrl-].
const detachKey = 0x1d

// vmConsole connects the terminal to a VM's console until the user detaches, the input ends or the VM stops.
func vmConsole(ctx context.Context, env ui.Env, dir string) error {
	conn, err := qemu.DialConsole(ctx, dir)
	if err != nil {
		return model.Errorf(model.CodeInvalidEnv, "check that the VM is running", "console: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if f, ok := env.Stdin.(*os.File); ok {
		restore, err := raw(int(f.Fd()))
		if err == nil {
			fmt.Fprint(env.Stderr, "weft: attached to the VM's console; Ctrl-] detaches\r\n")
			defer restore()
		}
	}
	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(env.Stdout, conn)
		ended <- err
	}()
	go func() { ended <- copyInput(conn, env.Stdin) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// copyInput sends input until detachKey.
func copyInput(to io.Writer, from io.Reader) error {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		part, _, detached := bytes.Cut(b[:n], []byte{detachKey})
		if _, err := to.Write(part); err != nil {
			return err
		}
		if detached || err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
