module github.com/slidegate/slidegate/clients/go

go 1.19
