module example.com/slidegate

go 1.19
