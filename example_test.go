package fairlead_test

import (
	"context"
	"fmt"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/client"
)

// A program opens a server, calls it as it would call any other, and closes it. Without a DatabaseURL the server has a
// private PostgreSQL in a directory of its own.
func ExampleOpen() {
	ctx := context.Background()
	server, err := fairlead.Open(ctx, fairlead.Options{DatabaseURL: "postgres://localhost/shop"})
	if err != nil {
		panic(err)
	}
	defer func() { _ = server.Close(ctx) }()

	account, err := server.Client().CreateAccount(ctx, client.CreateAccountRequest{ID: "ann", Currency: "EUR"})
	if err != nil {
		panic(err)
	}
	fmt.Println(account.Available)
}
