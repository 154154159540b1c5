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

// leave is the key that leaves a console: Ctrl-].
const leave = 0x1d

// vmConsole carries between the terminal and a machine's console until the key is pressed, the input ends or the
// machine does.
func vmConsole(ctx context.Context, env ui.Env, dir string) error {
	conn, err := qemu.DialConsole(ctx, dir)
	if err != nil {
		return model.Faultf(model.CodeInvalidEnv, "has the machine started?", "console: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if f, ok := env.Stdin.(*os.File); ok {
		restore, err := raw(int(f.Fd()))
		if err == nil {
			fmt.Fprint(env.Stderr, "weft: the machine's console; Ctrl-] leaves it\r\n")
			defer restore()
		}
	}
	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(env.Stdout, conn)
		ended <- err
	}()
	go func() { ended <- typed(conn, env.Stdin) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// typed sends what is typed, until the key that leaves.
func typed(to io.Writer, from io.Reader) error {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		part, _, left := bytes.Cut(b[:n], []byte{leave})
		if _, err := to.Write(part); err != nil {
			return err
		}
		if left || err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
